"""The target model: loading it, and binding the engine to it without touching its code.

::

    loading    a name to model, tokenizer and config; given: what was handed over in its place
    files      reading the files of models and adapters; configs: what their JSON must say
    formats    what kind of drafter or model a folder holds; baked: heads inside a target
    vocabulary whether text becomes tokens; detokenizer: tokens back to text
    target     the model bound: forward, hidden, project, aux_states
    anatomy    where its body, layers and embedding are; hooks: what its modules are made to tell
    head       its head for some ids only; team: one model on several ranks
    fingerprint  a hash of its weights
    adapters   LoRA by name; adapterfiles: what they are read from
    compiled   small forwards as one graph, for drafters
    reading    arrays to Python numbers, with types; forked: processes without mlx's threads
"""
