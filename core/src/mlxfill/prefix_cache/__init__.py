"""Caches that earlier requests left, for those that begin alike.

::

    store       the newest caches, bounded by number and bytes
    prefilled   caches that hold the beginning of a prompt already
    boundaries  where in a prompt a later one may part from it
"""
