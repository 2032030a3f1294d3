"""Block drafters of the DFlash family for mlxfill: one forward of the drafter proposes a block.

::

    config      config.json of a published folder, in any of its forms
    weights     its tensors, checked and put into the module
    layers      attention over context and block, decoder layers, the convolution of DFlash2
    module      the drafter: context, backbone, and the heads that choose between candidates
    drafter     the module between embedding and head of one target
    rows        rows of drafts, together where they can be; their checkpoints
"""
