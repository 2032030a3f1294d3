"""Who guesses the tokens of a request, and what became of the guesses.

::

    session      the sources of a request: asked, clamped, told the outcome
    drafting     the drafter's part of a request
    group        sequences that draft together
    catching_up  telling a drafter of tokens that others chose
"""
