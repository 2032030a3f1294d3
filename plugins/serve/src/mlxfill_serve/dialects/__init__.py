"""Requests in the words of other servers: the table of their fields, and how it is applied.

::

    table        one line a field, and what becomes of it
    conversions  values that are put otherwise there
    hearing      a body as it came, in our words
    nested       what its objects hold that nothing heeds
"""
