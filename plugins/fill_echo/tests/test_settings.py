from __future__ import annotations

import pytest

from mlxfill import ConfigError, InputError, load_config
from mlxfill_fill_echo import EchoSettings


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"k": 0}, ["k", "1 to 64", "0"]),
        ({"k": -1}, ["k", "1 to 64", "-1"]),
        ({"k": 65}, ["k", "1 to 64", "65"]),
        ({"k": "8"}, ["k", "whole number", "8"]),
        ({"k": True}, ["k", "whole number", "True"]),
        ({"index_max": 0}, ["index_max", "at least 1", "0"]),
        ({"occurrences": 0}, ["occurrences", "at least 1", "0"]),
        ({"max_span": 1}, ["max_span", "at least 2", "1"]),
        ({"assert_": "yes"}, ["assert", "true or false", "yes"]),
        ({"max_sessions": 0}, ["max_sessions", "at least 1", "0"]),
        ({"session_tokens": 0.5}, ["session_tokens", "whole number", "0.5"]),
    ],
)
def test_an_illegal_value_gets_one_line_that_names_it(
    values: dict[str, object], named: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        EchoSettings(**values)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert [name for name in named if name not in message] == []


def test_the_table_in_the_config_file_says_assert() -> None:
    config = load_config({"plugins": {"fill-echo": {"assert": True, "k": 4}}})
    assert config.plugin_settings("fill-echo", EchoSettings) == EchoSettings(assert_=True, k=4)


def test_a_wrong_value_in_the_config_file_names_its_key() -> None:
    config = load_config({"plugins": {"fill-echo": {"k": 0}}})
    with pytest.raises(
        ConfigError, match=r"plugins\.fill-echo\.k must be a whole number from 1 to 64, not 0"
    ):
        config.plugin_settings("fill-echo", EchoSettings)
