from __future__ import annotations

import pytest

from mlxfill_spec_ngram import NgramSettings


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"min_ngram": "2"}, ["min_ngram", "whole number", "2"]),
        ({"min_ngram": 4}, ["min_ngram", "1 to 3", "max_ngram 3", "not 4"]),
        ({"min_ngram": 3, "max_ngram": 2}, ["min_ngram", "1 to 2", "max_ngram 2", "not 3"]),
        ({"min_ngram": 0}, ["min_ngram", "at least 1", "not 0"]),
        ({"min_ngram": -1}, ["min_ngram", "at least 1", "not -1"]),
        ({"max_ngram": 0}, ["max_ngram", "at least 1", "0"]),
        ({"min_ngram": 9, "max_ngram": 500}, ["min_ngram", "1 to 8", "max_ngram 500", "not 9"]),
        ({"depth": 0}, ["depth", "at least 1", "0"]),
        ({"depth": 20, "max_depth": 10}, ["depth 20", "max_depth 10"]),
        ({"depth": 2.5}, ["depth", "whole number", "2.5"]),
        ({"max_depth": True}, ["max_depth", "whole number", "True"]),
        ({"match": "last"}, ["match", "'first'", "'recent'", "last"]),
        ({"adaptive": "no"}, ["adaptive", "true or false", "no"]),
    ],
)
def test_an_illegal_value_gets_one_line_that_names_it(
    values: dict[str, object], named: list[str]
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        NgramSettings(**values)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert [name for name in named if name not in message] == []


def test_the_largest_values_are_legal() -> None:
    NgramSettings(max_ngram=500, min_ngram=8, max_depth=1000, depth=1000)


def test_namespaces_differ_with_every_value() -> None:
    settings = [
        NgramSettings(),
        NgramSettings(max_ngram=4),
        NgramSettings(min_ngram=2),
        NgramSettings(depth=9),
        NgramSettings(max_depth=47),
        NgramSettings(match="first"),
        NgramSettings(adaptive=False),
    ]
    assert len({each.namespace for each in settings}) == len(settings)
    assert NgramSettings().namespace == NgramSettings().namespace
