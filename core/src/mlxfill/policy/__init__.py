"""When speculation pays: what it costs, how often it is right, what it may lose.

Used alike for sources and drafters, for one sequence and many rows; it knows of no loop::

    plan          how long the next window should be, and what it won
    drafter       what is learnt about the drafter of an engine
    cost          what a window costs, in plain steps (calibration: measured at the start)
    acceptance    how often each producer is right
    budget        what speculation may lose, and when to try again
    clock         how long plain steps take
    constants     every number that was tuned
"""
