"""Numbers of a schema that llguidance (1.9) would not survive, found before it sees them.

Near the least number of 64 bits its ranges call themselves without end, which ends the process.
What a ``multipleOf`` leaves as remainders becomes a state each: 100,000 take seconds, and a few
million longer than anybody waits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from mlxfill import InputError

if TYPE_CHECKING:
    from mlxfill import Schema

LEAST = -9_200_000_000_000_000_000
MOST_REMAINDERS = 10_000
MULTIPLE = "multipleOf"
LONGEST = 40
"""Digits beyond which nothing is a whole number of 64 bits."""
_NUMBER = re.compile(r'(?:"(multipleOf)"\s*:\s*)?(-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)')


def check_numbers(schema: Schema) -> None:
    """Raise ``InputError`` for numbers that cannot be held."""
    numbers = _in_json(schema.text) if schema.kind == "json" else _in_lark(schema.text)
    multiples: list[Decimal] = []
    for key, number in numbers if schema.kind != "regex" else ():
        if isinstance(number, int) and number < LEAST:
            raise InputError(f"schema cannot be used: {number} is below {LEAST}")
        if key == MULTIPLE and number > 0 and math.isfinite(number):
            multiples.append(Decimal(str(number)))
    states = _remainders(multiples)
    if states > MOST_REMAINDERS:
        raise InputError(
            f"schema cannot be used: a common {MULTIPLE} of {states} (zeros at the end left out) is"
            f" more than {MOST_REMAINDERS}"
        )


def _in_json(text: str) -> Iterator[tuple[str, int | float]]:
    """Every number, and the key that it stands under."""
    try:
        waiting: list[tuple[str, Any]] = [("", json.loads(text))]
    except (ValueError, RecursionError):  # llguidance will say what is wrong with it
        return
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(key, item) for item in value]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield key, value


def _in_lark(text: str) -> Iterator[tuple[str, int | float]]:
    """The same in a grammar, whose JSON parts stand anywhere in it."""
    for key, digits in _NUMBER.findall(text):
        whole = digits.removeprefix("-").isdigit() and len(digits) < LONGEST
        yield key, int(digits) if whole else float(digits)


def _remainders(multiples: list[Decimal]) -> int:
    """Remainders that tell whether a number is a multiple of all, but for zeros at its end."""
    places = max((-int(each.as_tuple().exponent) for each in multiples), default=0)
    common = math.lcm(*(int(each.scaleb(max(places, 0))) for each in multiples))
    while common % 10 == 0:
        common //= 10
    return common
