"""Rules for settings: what they take, and the one line that says why not."""

from __future__ import annotations

import math
from typing import Any

import pytest
from attrs import field, fields, fields_dict, frozen
from hypothesis import given
from hypothesis import strategies as st

from mlxfill import InputError, Sampling, rules
from mlxfill.config import Generation
from mlxfill.request.options import Options


@frozen(kw_only=True)
class Settings:
    depth: Any = field(default=1, validator=rules.whole(1, 64))
    least: Any = field(default=0, validator=rules.whole(0))
    maybe: Any = field(default=None, validator=rules.whole(1, optional=True))
    share: Any = field(default=0.5, validator=rules.number(0, 1))
    seconds: Any = field(default=None, validator=rules.number(0.001, optional=True))
    match: Any = field(default="first", validator=rules.one_of("first", "recent"))
    bits: Any = field(default=None, validator=rules.one_of(None, 2, 4, 8))
    mode: Any = field(default=None, validator=rules.one_of(None, "fast"))
    assert_: Any = field(default=False, validator=rules.boolean)
    label: Any = field(default=None, validator=rules.filled)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"depth": 0}, "depth must be a whole number from 1 to 64, not 0"),
        ({"depth": 65}, "depth must be a whole number from 1 to 64, not 65"),
        ({"depth": 2.0}, "depth must be a whole number from 1 to 64, not 2.0"),
        ({"depth": True}, "depth must be a whole number from 1 to 64, not True"),
        ({"depth": None}, "depth must be a whole number from 1 to 64, not None"),
        ({"least": -1}, "least must be a whole number of at least 0, not -1"),
        ({"maybe": 0}, "maybe must be a whole number of at least 1, not 0"),
        ({"share": 1.5}, "share must be 0 to 1, not 1.5"),
        ({"share": math.nan}, "share must be 0 to 1, not nan"),
        ({"share": True}, "share must be 0 to 1, not True"),
        ({"share": "half"}, "share must be 0 to 1, not 'half'"),
        ({"seconds": 0}, "seconds must be at least 0.001, not 0"),
        ({"match": "last"}, "match must be 'first' or 'recent', not 'last'"),
        ({"bits": 3}, "bits must be 2, 4 or 8, not 3"),
        ({"mode": "slow"}, "mode must be 'fast', not 'slow'"),
        ({"bits": 4.0}, "bits must be 2, 4 or 8, not 4.0"),
        ({"label": ""}, "label is empty: give a value, or leave it out"),
        ({"assert_": 1}, "assert must be true or false, not 1"),
    ],
)
def test_an_illegal_value_is_named_with_what_would_be_legal(
    values: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError) as caught:
        Settings(**values)
    assert str(caught.value) == said


@given(
    depth=st.integers(1, 64),
    least=st.integers(0),
    maybe=st.none() | st.integers(1),
    share=st.floats(0, 1) | st.integers(0, 1),
    seconds=st.none() | st.floats(0.001),
    match=st.sampled_from(["first", "recent"]),
    bits=st.sampled_from([None, 2, 4, 8]),
    assert_=st.booleans(),
)
def test_legal_values_are_taken_as_they_are(**values: Any) -> None:
    made = Settings(**values)
    assert {name: getattr(made, name) for name in values} == values


def _said(kind: type, name: str, value: object) -> str:
    try:
        kind(**{name: value})
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("attribute", fields(Generation), ids=lambda attribute: attribute.name)
def test_config_and_options_have_the_same_defaults_and_limits(attribute: Any) -> None:
    kind = Options if attribute.name in fields_dict(Options) else Sampling
    assert fields_dict(kind)[attribute.name].default == attribute.default
    for value in (-2, -1, -0.5, 0, 0.5, 1, 2, 3, 7, 16, 33, 1.5, None, "1", True, 10**7, 1 << 63):
        config, request = (_said(k, attribute.name, value) for k in (Generation, kind))
        assert bool(config) == bool(request), (value, config, request)
