"""The way of a token through one request.

::

    prefill           the prompt through the target (prompt_scores: its log-probabilities)
    loop              token by token, or several in a window; one sequence, or several together
    sequence          one request in the loop: offers, outcomes, counters, the end
    windows, ledger   who fills the next window, and what it cost by the clock
    method            another way to generate than token by token
    reply, collected  tokens to text and calls, and what the caller gets back
    runstate, run     what a request is made of, and what its caller holds
    stop              what ends a run or lets it rest
    trace             what happens in between, as events
    profile           what is found out about a model, once
"""
