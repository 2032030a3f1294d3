"""A generation between two forwards, in memory or in a file.

::

    checkpoint  content and arrays; load and save
    content     the content as classes: whatever is read is checked by them
    serialize   values of Python and mlx in JSON and arrays
    file, lock  the file, and one process at a time on it
    writer      the thread that writes files beside the computing
"""
