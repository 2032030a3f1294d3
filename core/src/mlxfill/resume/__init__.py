"""Taking checkpoints of a run, and going on from one.

::

    keeper    when a run leaves checkpoints
    capture   what a run is made of at a pause
    counters  its counters and times, and giving them back
    fitting   whether what is stored fits the model that is to go on with it
    identity  what a checkpoint must meet again: weights, and how plugins were set
"""
