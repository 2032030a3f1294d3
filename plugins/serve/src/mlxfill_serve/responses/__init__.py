"""OpenAI's Responses API, as a translation around chat completions.

A request becomes the chat request that asks the same (``asking``), the parts of the reply become
items and events (``items``, ``answers``), and what was said is kept for a while (``store``).
"""
