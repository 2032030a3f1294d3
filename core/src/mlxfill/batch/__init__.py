"""Several requests that share forwards.

::

    scheduler      runs join after their prefill and leave between rounds
    prefill_queue  whose prompt is read next, and who else's in the same forward
"""

MAX_ROWS = 8
"""Most requests that share forwards, unless another number is asked for."""
