"""Chat messages to the text and ids of a prompt.

::

    prompt           a text, ids or messages to a prompt, through the chat template
    contents, roles  what messages may hold, and what a template takes of it
    markers          special tokens that stand in contents; shortest: fewest ids of a text
    template_checks  options and calls that a template never reads
    thoughts         what the model thought in earlier turns
    readonly         messages and tools as plugins see them
    schema           the forms in which a schema may be given
"""
