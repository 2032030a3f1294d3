"""Changes that keep an input readable: JSON stays JSON, a command line stays words."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutator = Callable[[bytes, int, int], bytes]
"""Data, most bytes, seed; new data.  libFuzzer's own changes cannot be had inside of one."""
READABLE = 0.8
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**63, 2**64, -(2**63), 0.5, 1e308, float("nan"), float("inf")),
    *("", "a", "\0", "\ud800", "é", "\U0001f600", "x" * 300, "{{", "}}", "%", "\n", "__class__"),
    *([], {}, [[]], {"": None}, [None], "object", "string", "function", "$ref", "#"),
)


def of_json(words: Sequence[str]) -> Mutator:
    """Changes a value of a JSON text, which may stand behind one letter; now and then a byte.

    :param words: JSON texts to put in.
    """
    values = [*VALUES, *(_value(word) for word in words)]

    def change(data: bytes, most: int, seed: int) -> bytes:
        draw = Random(seed)  # noqa: S311 - a fuzzer repeats itself
        for at in (0, 1):
            tree = _value(data[at:])
            if draw.random() < READABLE and tree is not None:
                for _ in range(draw.randint(1, 3)):
                    tree = _changed(tree, values, draw)
                made = data[:at] + json.dumps(tree).encode()
                if len(made) <= most:
                    return made
        return _bytes_changed(data, most, draw)

    return change


def of_words(words: Sequence[str]) -> Mutator:
    """Changes the lines of a text: one word each."""

    def change(data: bytes, most: int, seed: int) -> bytes:
        draw = Random(seed)  # noqa: S311
        if draw.random() > READABLE:
            return _bytes_changed(data, most, draw)
        lines = data.split(b"\n")
        at, word = draw.randrange(len(lines) + 1), draw.choice(words).encode()
        match draw.randrange(3):
            case 0:
                lines.insert(at, word)
            case 1:
                lines[at : at + 1] = [word]
            case _:
                del lines[at - 1 : at]
        return b"\n".join(lines)[:most]

    return change


def _bytes_changed(data: bytes, most: int, draw: Random) -> bytes:
    """Some bytes replaced by others, by none or by bytes from elsewhere in the input."""
    at, other = draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)
    length = draw.choice([0, 1, 1, 4, 16])
    new = draw.choice([draw.randbytes(length), data[other : other + length]])
    return (data[:at] + new + data[at + draw.choice([0, 1, length]) :])[:most]


def _value(text: str | bytes) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _changed(tree: Any, values: Sequence[Any], draw: Random) -> Any:  # noqa: ANN401
    """``tree`` with a value somewhere in it replaced, left out, doubled, wrapped or renamed."""
    inside = isinstance(tree, dict | list) and len(tree) > 0 and draw.random() < READABLE
    if not inside:
        new = copy.deepcopy(draw.choice(values))
        return draw.choice([new, new, [tree], {"type": tree}, {str(new): tree}])
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    key = draw.choice(keys)
    match draw.randrange(6):
        case 0:
            tree.pop(key)
        case 1 if isinstance(tree, list):
            tree.append(copy.deepcopy(tree[key]))
        case 1:
            tree[str(draw.choice(values))] = tree[key]
        case 2:
            other = draw.choice(keys)
            tree[key], tree[other] = tree[other], tree[key]
        case _:
            tree[key] = _changed(tree[key], values, draw)
    return tree
