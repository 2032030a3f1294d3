"""From the name of a model to its modules: files, and what they must say.

::

    model        a name to model, tokenizer and config; given: what was handed over in its place
    files        reading the files of models; adapters: those of LoRA adapters
    configs      what their JSON must say; vocabulary: whether text becomes tokens
    formats      what kind of drafter or model a folder holds
    baked        heads inside a target; tensors: weights of heads and drafters
    forked       processes without mlx's threads
"""
