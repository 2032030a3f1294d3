"""A run checked against plain decoding.

::

    audit   every proposal beside what the model itself would say
    replay  the same text, plainly and in windows
"""
