"""What a request counts and times.

::

    counters  rounds, windows, spans and drafts
    phases    the phases of a window, where they were asked for
"""
