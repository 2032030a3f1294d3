"""Anthropic's Messages API, as a translation around chat completions.

A request becomes the chat request that asks the same (``asking``); the parts of the reply become
content blocks and events (``answers``).
"""
