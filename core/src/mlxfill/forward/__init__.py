"""Tokens through the target.

::

    runner        windows, steps and chunks through the target; caches and processors of a request
    batch_runner  windows and steps of several requests in one forward
    guarded       plugins' parts that a request cannot go on without
    constraint    the plugin that holds a reply to its schema
    watched       checks what the caches hold, for traces
"""
