"""Taking prompt caches back to an earlier token of the newest window.

::

    window     all entries of a model together: begin, forward, then commit or rewind
    entries    a rewinder for each kind of cache entry
    replay     one layer called again on the kept part of its own input
    mark       a boundary to come back to after several forwards, for drafters
    rings      whether sliding windows see as much in a window as in single steps
"""
