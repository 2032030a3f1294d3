"""What is asked of an engine, and what comes back.

::

    options, keywords  the options of a request, and their types for editors (checks: their rules)
    text               tokens to text as they come, and stop strings
    results            pieces, results, statistics and prompt caches
"""
