"""The option ``schema``: its forms, who holds a reply to it, and what the engine does meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import mlx.core as mx
import pytest
from attrs import define, field

from mlxfill import (
    InputError,
    PluginError,
    Policy,
    Proposal,
    Schema,
    hookimpl,
    stream_generate,
)
from mlxfill.cli.options.decoding import Decoding
from mlxfill.plugins import PluginManager
from mlxfill.request.options import make_options
from mlxfill_testing import EOS, Guest, engine_with, plain, shared_model, tiny_model, tiny_tokenizer

PROMPT = [5, 9, 5, 9]
ANY = {"type": "object"}


# --- forms -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"type": "object", "b": 1, "a": 2}, "json", '{"type": "object", "b": 1, "a": 2}'),
        ({}, "json", "{}"),
        ({"type": "json_object"}, "json", '{"type": "object"}'),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": ANY}}, "json", None),
        ({"regex": "a+"}, "regex", "a+"),
        ({"lark": "start: A"}, "lark", "start: A"),
        ({"regex": "a+", "type": "string"}, "json", '{"regex": "a+", "type": "string"}'),
        (Schema("regex", "b"), "regex", "b"),
    ],
)
def test_forms_of_a_schema(given: Any, kind: str, text: str | None) -> None:
    schema = make_options({}, {"schema": given}).schema
    assert schema is not None
    assert (schema.kind, schema.text) == (kind, json.dumps(ANY) if text is None else text)


@pytest.mark.parametrize("given", [None, {"type": "text"}])
def test_no_schema(given: Any) -> None:
    assert make_options({}, {"schema": given}).schema is None


def deep() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"items": value}
    return value


def circle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["items"] = value
    return value


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda: "object", "schema must be a JSON schema, .* not 'object'"),
        (lambda: [1] * 100, r"not \[1, 1, .*\.\.\.$"),
        (lambda: {"regex": 3}, "schema.regex must be a non-empty string, not 3"),
        (lambda: {"lark": ""}, "schema.lark must be a non-empty string"),
        (lambda: {"type": "json_schema"}, "schema.json_schema.schema must be a JSON schema"),
        (lambda: {"const": float("nan")}, "schema is no JSON: Out of range"),
        (lambda: {"const": {1}}, "schema is no JSON: .*set"),
        (circle, "schema is no JSON: Circular"),
        (deep, "schema is nested too deeply"),
    ],
)
def test_what_is_no_schema(given: Callable[[], Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        make_options({}, {"schema": given()})


# --- who holds it ----------------------------------------------------------------------------


@define
class Only:
    """Holds a reply to ids of one list, in rounds of ``length`` of them."""

    ids: list[int]
    length: int = 10**9
    name: str = "only"
    wrong: BaseException | None = None
    seen: list[int] = field(factory=list)
    masked: list[list[int]] = field(factory=list)

    def propose(self, view: Any) -> Proposal | None:  # noqa: ARG002
        return None

    def observe(self, ids: Any) -> None:
        self.seen.extend(ids)

    def resolved(self, proposal: Any, accepted: int) -> None: ...

    def mask(self, tokens: mx.array, logits: mx.array) -> mx.array:
        if self.wrong is not None:
            raise self.wrong
        self.masked.append(cast("list[int]", tokens.tolist()))
        kept = mx.zeros(logits.shape, mx.bool_)
        kept[0, mx.array(self.ids)] = True
        return mx.where(kept, logits, -mx.inf)

    def complete(self) -> bool:
        return len(self.seen) >= self.length


class Holding(Guest):
    """A guest that holds replies."""

    made: Any = None

    @hookimpl
    def mlxfill_constraint(self, request: Any) -> Any:
        assert request.schema is not None
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


def holding(made: Any, **more: Any) -> Holding:
    guest = Holding(**more)
    guest.made = made
    return guest


def run(*guests: Guest, schema: Mapping[str, Any] | None = ANY, **options: Any) -> Any:
    trusted = [guest.name for guest in guests]
    with engine_with(shared_model("llama"), *guests, trusted=trusted) as engine:
        return engine.generate(PROMPT, schema=schema, **{"max_tokens": 12, **options})


def test_a_schema_that_nobody_holds_is_refused() -> None:
    with pytest.raises(InputError, match=r"pip install mlxfill-constrain$"):
        run(Guest())


def test_without_a_schema_nobody_is_asked() -> None:
    only = Only([7])
    assert run(holding(only), schema=None).tokens == plain(shared_model("llama"), PROMPT, 12).tokens
    assert only.masked == []


def test_the_first_that_can_holds_the_reply() -> None:
    first, second = Only([5, 6]), Only([7])
    guests = holding(None, name="a"), holding(first, name="b"), holding(second, name="c")
    result = run(*guests)
    assert set(result.tokens) <= {5, 6}
    assert first.seen == result.tokens
    assert second.masked == []
    session = PROMPT + result.tokens
    assert first.masked == [session[:n] for n in range(len(PROMPT), len(session))]


def test_an_error_in_the_schema_goes_to_the_caller() -> None:
    with pytest.raises(InputError, match="no such word"):
        run(holding(InputError("no such word"), name="a"), holding(Only([7]), name="b"))


@pytest.mark.parametrize("made", [ValueError("oh"), 3])
def test_a_plugin_that_fails_is_named(made: Any) -> None:
    with pytest.raises(PluginError, match="plugin 'guest' fails on the schema: "):
        run(holding(made))
    result = run(holding(made, name="a"), holding(Only([7]), name="b"))
    assert [fault.plugin for fault in result.faults] == ["a"]
    assert set(result.tokens) == {7}


def test_a_mask_that_fails_ends_the_request() -> None:
    for wrong in (KeyError("k"), SystemExit(3)):
        with pytest.raises(
            PluginError, match=f"'guest' failed in holding .*: {type(wrong).__name__}"
        ):
            run(holding(Only([7], wrong=wrong)))
    with pytest.raises(InputError, match="too much"):
        run(holding(Only([7], wrong=InputError("too much"))))


# --- meanwhile -------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "reason"), [(12, "stop"), (5, "stop"), (4, "length")])
def test_a_reply_that_is_whole_ends(most: int, reason: str) -> None:
    result = run(holding(Only([5, 6], length=5)), max_tokens=most, eos_token_ids=())
    assert (len(result.tokens), result.finish_reason) == (min(most, 5), reason)


def test_the_mask_comes_last() -> None:
    def wishing(_: mx.array, logits: mx.array) -> mx.array:
        return mx.where(mx.arange(logits.shape[-1]) == 9, 1e9, logits)

    guest = holding(Only([5, 6]), processors=[wishing])
    assert set(run(guest, logits_processors=[wishing]).tokens) <= {5, 6}


def test_asserts_of_others_are_verified() -> None:
    sure = [Proposal((9, 9, 9), Policy.ASSERT, "template")]
    other = Guest(name="other", sources=[lambda _: Always(sure[0])])
    assert 9 in run(other, schema=None).tokens
    assert set(run(other, holding(Only([5, 6]))).tokens) <= {5, 6}


@define
class Always:
    """Proposes one thing only."""

    proposal: Proposal
    name: str = "always"

    def propose(self, view: Any) -> Proposal:  # noqa: ARG002
        return self.proposal

    def observe(self, ids: Any) -> None: ...

    def resolved(self, proposal: Any, accepted: int) -> None: ...


def test_a_model_that_generates_otherwise_takes_no_schema() -> None:
    class Method:
        name = "at-once"

        def generate(self, request: Any) -> Any:  # noqa: ARG002
            return iter(())

    with pytest.raises(InputError, match="'at-once' does not generate token by token"):
        run(holding(Only([7]), method=Method()))


def test_the_drop_in_ends_as_mlx_lm_does() -> None:
    manager = PluginManager([("guest", holding(Only([5, 6], length=5)))])
    model, options = tiny_model("llama"), {"plugins": manager}
    responses = list(
        stream_generate(
            model, tiny_tokenizer(), PROMPT, schema=ANY, max_tokens=12, engine_options=options
        )
    )
    assert {response.token for response in responses[:-1]} <= {5, 6}
    assert [response.finish_reason for response in responses] == [None] * 5 + ["stop"]
    assert responses[-1].token == EOS


# --- on the command line ---------------------------------------------------------------------


def test_options_of_the_command_line(tmp_path: Any) -> None:
    file = tmp_path / "s.json"
    file.write_text('{"enum": ["é"]}', "utf-8")
    grammar = tmp_path / "g.lark"
    grammar.write_text("start: A", "utf-8")
    assert Decoding(schema=str(file)).given() == {"schema": {"enum": ["é"]}}
    assert Decoding(schema=' {"const": 1}').given() == {"schema": {"const": 1}}
    assert Decoding(regex="a+").given() == {"schema": {"regex": "a+"}}
    assert Decoding(grammar=str(grammar)).given() == {"schema": {"lark": "start: A"}}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"schema": "no.json"}, "--schema no.json: No such file"),
        ({"schema": "{"}, "--schema is not JSON"),
        ({"schema": '{"a":' * 100_000}, "--schema is not JSON"),
        ({"grammar": "no.lark"}, "--grammar no.lark: No such file"),
        ({"regex": "a", "schema": "{}"}, "give one of --schema, --regex, not several"),
    ],
)
def test_wrong_options_of_the_command_line(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Decoding(**options).given()
