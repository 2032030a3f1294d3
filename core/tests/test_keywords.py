"""The keywords that editors complete are those that requests take."""

from __future__ import annotations

import inspect

import pytest

from mlxfill import Engine, Sampling
from mlxfill.engine.resume import GIVEN_AGAIN
from mlxfill.request.keywords import RequestOptions, ResumeOptions, SamplingOptions
from mlxfill.request.options import Options


def test_every_option_has_a_typed_keyword_and_no_other_has() -> None:
    fields = {*inspect.signature(Options).parameters, *inspect.signature(Sampling).parameters}
    assert set(RequestOptions.__annotations__) == fields
    assert set(SamplingOptions.__annotations__) == set(inspect.signature(Sampling).parameters)
    assert set(ResumeOptions.__annotations__) == set(GIVEN_AGAIN)


@pytest.mark.parametrize(
    ("method", "keywords"),
    [
        (Engine.stream, "RequestOptions"),
        (Engine.generate, "RequestOptions"),
        (Engine.check, "RequestOptions"),
        (Engine.audit, "RequestOptions"),
        (Engine.audited, "RequestOptions"),
        (Engine.resume, "ResumeOptions"),
    ],
)
def test_the_doors_of_an_engine_name_their_keywords(method: object, keywords: str) -> None:
    annotation = inspect.signature(method).parameters["options"].annotation  # type: ignore[arg-type]
    assert annotation == f"Unpack[{keywords}]"
