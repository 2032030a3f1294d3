"""JSON whose numbers stay what they are, on every way by which a schema comes."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlxfill import exactjson
from mlxfill.cli.options.shape import read_shape
from mlxfill.request.options import make_options

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = [
    "0.10000000000000000001",
    "1.00000000000000000001",
    "-0.3333333333333333333333333",
    "9007199254740993.0",
    "1e400",
    "1e-400",
    "123456789012345678901234567890.5",
    "1E99999999999999999999",
]


def number(text: str) -> str:
    return f'{{"multipleOf": {text}, "enum": [[{text}]]}}'


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_is_written_as_it_was_read(text: str) -> None:
    read = exactjson.loads(number(text))
    assert exactjson.dumps(read) == number(text)
    assert read["multipleOf"] == float(text)


@pytest.mark.parametrize("text", NUMBERS)
def test_the_schema_of_a_request_has_every_digit(text: str, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(number(text))
    for given_ in (number(text), str(file)):
        schema = make_options({}, {"schema": read_shape({"schema": given_})}).schema
        assert schema is not None
        assert schema.text == number(text)


def test_decimals_of_a_caller_are_exact() -> None:
    schema = make_options({}, {"schema": {"const": Decimal("1.00000000000000000001")}}).schema
    assert schema is not None
    assert schema.text == '{"const": 1.00000000000000000001}'


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
@example(['"1.5"', "\\", 1e300, -0.0])
def test_whatever_else_is_as_of_json(value: Any) -> None:
    text = json.dumps(value)
    assert exactjson.dumps(value) == text
    assert repr(exactjson.loads(text)) == repr(json.loads(text))
