"""JSON whose numbers stay what they are: schemas mean the digits that somebody wrote.

``json`` reads a decimal as the nearest double, so that 1.00000000000000000001 becomes 1.0.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import uuid4


class Rounded(float):
    """A number that is no double: the nearest one, with its ``text`` as it was written."""

    text = ""

    @classmethod
    def read(cls, text: str) -> float:
        """The double of a number's text, a ``Rounded`` one if it is another number."""
        double = float(text)
        try:
            if Decimal(repr(double)) == Decimal(text):
                return double
        except InvalidOperation:  # an exponent beyond all bounds
            pass
        rounded = cls(double)
        rounded.text = text
        return rounded


def loads(text: str | bytes, **options: Any) -> Any:  # noqa: ANN401 - as of json
    """As ``json.loads``; a number that no double is equal to is ``Rounded``."""
    return json.loads(text, parse_float=Rounded.read, **options)


def dumps(value: object, **options: Any) -> str:  # noqa: ANN401 - as of json
    """As ``json.dumps``, with ``Rounded`` numbers and decimals digit for digit."""
    mark = uuid4().hex
    with suppress(RecursionError):  # json says what is wrong
        value = _marked(value, mark)
    return re.sub(rf'"{mark}([^"]*)"', r"\1", json.dumps(value, **options))


def _marked(value: object, mark: str) -> object:
    """The same with such numbers as texts that begin with ``mark``."""
    match value:
        case Rounded():
            return mark + value.text
        case Decimal() if value.is_finite():
            return f"{mark}{value}"
        case dict():
            return {key: _marked(each, mark) for key, each in value.items()}
        case list() | tuple():
            return [_marked(each, mark) for each in value]
    return value
