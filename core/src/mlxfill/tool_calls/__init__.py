"""Tool calls: the form in which each model writes them, and how they are read.

::

    read      the calls in a reply, as ``mlxfill.read_calls`` gives them
    history   the calls of earlier turns, as the chat template takes them
    formats   which form a model's calls have, where mlx-lm does not know it
    readers   reading each form; literals: arguments in Python's syntax; jsontext: in JSON
"""
