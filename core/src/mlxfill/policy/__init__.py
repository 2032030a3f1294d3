"""When speculation pays: what it costs, how often it is right, what it may lose.

Used alike for sources and drafters, for one sequence and many rows; it knows of no loop::

    plan          how deep to speculate now (rowplan: for a window of several rows)
    cost          what a window costs, in plain steps (calibration: measured at the start)
    acceptance    how often each producer is right
    budget        what speculation may lose, and when to try again
    constants     every number that was tuned
"""
