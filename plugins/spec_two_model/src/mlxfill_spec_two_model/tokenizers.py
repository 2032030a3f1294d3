"""Do two tokenizers speak the same ids?"""

from __future__ import annotations

from typing import Any

PROBES = (
    "The quick brown fox jumps over 13 lazy dogs, twice: 1,024.50 times.",
    'def total(items: list[dict]) -> float:\n\treturn sum(i["price"] for i in items)  # all\n\n',
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>',
    "Żółć, naïve façade, Ελληνικά, русский, 日本語, 한국어, العربية",
    "🙂👩‍🚀 \u00a0\u200b …“quotes”—dashes   and    spaces\r\n",
)


def first_difference(ours: Any, theirs: Any) -> str | None:  # noqa: ANN401 - mlx-lm's wrappers
    """The first probe that the two encode differently; None when they agree on all.

    The probes are prose, code, markup, scripts and symbols, and the special tokens of ``theirs``.
    Tokens that only ``ours`` has do no harm: ``theirs`` never writes them.
    """
    for probe in (*PROBES, *_specials(theirs)):
        if _ids(ours, probe) != _ids(theirs, probe):
            return probe
    return None


def _ids(tokenizer: Any, text: str) -> list[int]:  # noqa: ANN401
    return list(tokenizer.encode(text, add_special_tokens=False))


def _specials(tokenizer: Any) -> list[str]:  # noqa: ANN401
    return [str(token) for token in getattr(tokenizer, "all_special_tokens", ())]
