"""Which drafters there are for a model: in its folder, beside it, in the hub cache, published.

::

    find        all of them, the most promising first
    inside      the one that came with the model, in its own folder
    places      the folders in which one may lie
    names       by which names a model is known; published pairs, a line each in pairs.txt
    fit         whether a drafter fits a model, by configs, tokenizers and headers of weights
    outlook     what the cost model expects of one before it is loaded
"""
