"""Caches that hold several sequences of different lengths, each rewound on its own.

::

    caches     the prompt caches of several rows as one, for a forward of all of them
    storage    keys and values, each row written from its own position on
    batched    the same for a draft model, in plain caches
    reading    parts of several prompts in one forward
    proof      whether a model can do either: tried, not assumed
"""
