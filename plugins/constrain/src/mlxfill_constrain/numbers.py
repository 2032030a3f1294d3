"""Numbers of a schema: those that llguidance (1.9) would not hold exactly are refused.

It reads each as a double, and bounds of whole numbers as 64 bits: 9007199254740993 would become
its neighbour, and near the least number of 64 bits its ranges call themselves without end, which
ends the process.  What a ``multipleOf`` leaves as remainders becomes a state each: 100,000 take
seconds, and a few million longer than anybody waits.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from mlxfill import InputError
from mlxfill_constrain.metaschema import TYPES
from mlxfill_constrain.normal import OF_NUMBERS, forbid
from mlxfill_constrain.tree import nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mlxfill_constrain.tree import Node

LEAST, MOST = -9_200_000_000_000_000_000, 2**63 - 1
MOST_REMAINDERS = 10_000
MULTIPLE = "multipleOf"
LONGEST = 40
"""Digits of a number that are shown."""
MULTIPLES = 2**32
"""llguidance multiplies two of them, their decimal point left out, in 32 bits."""
COUNTS = [
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
]


def settle_numbers(root: Node) -> None:
    """Check the numbers of a normalized schema, and join those that belong together.

    :raises InputError: one cannot be held.
    """
    whole = large = False
    multiples: list[Decimal] = []
    for node in nodes(root):
        for key in COUNTS:
            if isinstance(node.get(key), Decimal):
                node[key] = _count(key, node[key])
        for key, number in _numbers(node):
            large |= not -MOST <= number <= MOST
            _check(key, number, node)
        _settle_multiple(node)
        if MULTIPLE in node:
            multiples.append(Decimal(node[MULTIPLE]))
        whole |= "integer" in node.get("type", ())
    if large and whole:
        said = f"const and enum of a number beyond {MOST} beside the type integer"
        raise InputError(f"schema cannot be used: {said}")
    _check_multiples(multiples)


def _count(key: str, number: Decimal) -> int:
    """1.0 is a whole number, and so is 1e3."""
    if number > MOST or number != number.to_integral_value():
        said = f"{key} {_shown(number)} is no whole number of 64 bits"
        raise InputError(f"schema cannot be used: {said}")
    return int(number)


def _exact(number: int | Decimal, *, whole: bool) -> bool:
    """Whether llguidance would write this very number, and not another that is the same double.

    :param whole: whether it writes it as a whole number of 64 bits, rather than as a double.
    """
    try:
        double = float(number)
    except OverflowError:
        return False
    return Decimal(repr(double)) == number or (whole and double == number)


def _numbers(node: Mapping[str, object]) -> Iterator[tuple[str, int | Decimal]]:
    """Every number that rules something out, and the keyword that it stands under."""
    waiting = [(key, node[key]) for key in (*OF_NUMBERS, "const", "enum") if key in node]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(key, item) for item in value.values()]
        elif isinstance(value, list):
            waiting += [(key, item) for item in value]
        elif isinstance(value, int | Decimal) and not isinstance(value, bool):
            yield key, value


def _check(key: str, number: int | Decimal, node: Node) -> None:
    bound = key in OF_NUMBERS
    if number < LEAST and (bound or isinstance(number, int)):
        raise InputError(f"schema cannot be used: {_shown(number)} is below {LEAST}")
    whole = node.get("type") == "integer"
    if key == "maximum" and number == MOST and whole:
        return  # it is rounded up, and then cut to just this
    if bound and number > -LEAST:
        raise InputError(f"schema cannot be used: {key} {_shown(number)} is above {-LEAST}")
    if not bound:
        whole = isinstance(number, int) and number <= MOST
    if not _exact(number, whole=whole):
        said = f"{key} {_shown(number)} would be rounded to 64 bits: give it as a string"
        raise InputError(f"schema cannot be used: {said}")


def _shown(number: int | Decimal) -> str:
    if isinstance(number, int) and abs(number) >= 10**LONGEST:
        return f"a number of {len(str(abs(number)))} digits"
    text = str(number)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


# --- multiples ----------------------------------------------------------------------------


def _settle_multiple(node: Node) -> None:
    """Join ``multipleOf`` with the type integer, and see whether the bounds leave a multiple."""
    step = Fraction(node.get(MULTIPLE, 1))
    kinds = node.get("type", list(TYPES))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    integers = "integer" in kinds and "number" not in kinds
    if integers:
        step = Fraction(step.numerator)
        if MULTIPLE in node:
            node[MULTIPLE] = step.numerator
    if (MULTIPLE in node or integers) and not _holds_multiple(node, step):
        left = [kind for kind in kinds if kind not in {"integer", "number"}]
        if left:
            node["type"] = left
            for key in OF_NUMBERS.intersection(node):
                del node[key]
        else:
            forbid(node)


def _holds_multiple(node: Node, step: Fraction) -> bool:
    low = [math.ceil(Fraction(node["minimum"]) / step)] if "minimum" in node else []
    high = [math.floor(Fraction(node["maximum"]) / step)] if "maximum" in node else []
    if "exclusiveMinimum" in node:
        low.append(math.floor(Fraction(node["exclusiveMinimum"]) / step) + 1)
    if "exclusiveMaximum" in node:
        high.append(math.ceil(Fraction(node["exclusiveMaximum"]) / step) - 1)
    return not low or not high or max(low) <= min(high)


def _check_multiples(multiples: list[Decimal]) -> None:
    states = _remainders(multiples)
    if states > MOST_REMAINDERS:
        raise InputError(
            f"schema cannot be used: a common {MULTIPLE} of {states} (zeros at the end left out) is"
            f" more than {MOST_REMAINDERS}"
        )
    for each in multiples:
        if _read(each) != each:
            said = f"{MULTIPLE} {each} has too many digits"
            raise InputError(f"schema cannot be used: {said}")
    whole = _whole(multiples)
    joined = [math.lcm(*whole[: at + 1]) for at in range(len(whole))]
    if any(one * other >= MULTIPLES for one, other in zip(joined, whole[1:], strict=False)):
        raise InputError(f"schema cannot be used: {MULTIPLE} of several sizes, far from each other")


def _read(multiple: Decimal) -> Decimal | None:
    """What llguidance makes of a multiple: it shifts the point of a double until it is whole."""
    value, places = float(multiple), 0
    while value % 1 and value < MULTIPLES:
        value, places = value * 10, places + 1
    return Decimal(int(value)).scaleb(-places) if value < MULTIPLES else None


def _whole(multiples: list[Decimal]) -> list[int]:
    """The multiples with their points moved to the right as far as all need it."""
    places = max((-int(each.as_tuple().exponent) for each in multiples), default=0)
    return [int(each.scaleb(max(places, 0))) for each in multiples]


def _remainders(multiples: list[Decimal]) -> int:
    """Remainders that tell whether a number is a multiple of all, but for zeros at its end."""
    common = math.lcm(*_whole(multiples))
    while common % 10 == 0:
        common //= 10
    return common
