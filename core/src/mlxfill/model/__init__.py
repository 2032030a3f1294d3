"""The target model: loading it, and binding the engine to it without touching its code.

::

    loading    a name to model, tokenizer and config
    target     the model bound: forward, hidden, project, taps
    anatomy    where its body, layers and embedding are; hooks: what its modules are made to tell
    head       its head for some ids only; adapters: LoRA by name; team: one model on several ranks
    compiled   small forwards as one graph, for drafters
    reading    arrays to Python numbers, with types
"""
