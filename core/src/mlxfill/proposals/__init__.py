"""Who guesses the tokens of a request, and what became of the guesses.

::

    session      the sources of a request: asked, clamped, told the outcome
    drafter      the drafter of an engine, and what its drafts cost
    drafting     the drafter's part of a request
    catching_up  telling a drafter of tokens that others chose
"""
