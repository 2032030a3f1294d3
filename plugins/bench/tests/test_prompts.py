"""Reading the user's own prompts."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mlxfill
from mlxfill_bench import SAMPLES, Plan, read_prompts
from mlxfill_bench.prompts import unfit
from mlxfill_testing import engine_with

HI = {"role": "user", "content": "Hi."}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def written(name: str, *lines: object) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    Path(name).write_text("\n".join(texts) + "\n", encoding="utf-8")
    return Path(name)


def test_a_text_file_has_a_prompt_a_line() -> None:
    prompts = read_prompts(written("p.txt", "One.", "", "Two.\t"))
    assert [p.id for p in prompts] == ["1", "2"]
    assert [p.history for p in prompts] == [
        ({"role": "user", "content": text},) for text in ("One.", "Two.\t")
    ]


def test_rules_stand_between_prompts_of_several_lines() -> None:
    file = written("p.md", "---", "def f():", "", "    return 1", "---", "Two.", "---")
    assert [p.history for p in read_prompts(file, raw=True)] == [
        "def f():\n\n    return 1",
        "Two.",
    ]


def test_a_line_of_json_is_a_text_messages_or_an_object() -> None:
    told = {"id": "told", "messages": [HI], "tools": [TOOL], "template_options": {"x": 1}}
    file = written("p.jsonl", json.dumps("Hi."), [HI], told, {"prompt": "Hi.", "id": 4}, '"\u2028"')
    first, second, third, fourth, fifth = read_prompts(file)
    assert first.history == second.history == third.history == fourth.history == (HI,)
    assert [p.id for p in (first, second, third, fourth)] == ["1", "2", "told", "4"]
    assert (third.tools, third.template_options) == ((TOOL,), {"x": 1})
    assert first.tools is None
    assert fifth.history == ({"role": "user", "content": "\u2028"},)
    (turn,) = third.turns()
    assert (turn.number, turn.history, turn.recorded) == (1, (HI,), None)


def test_raw_texts_stay_texts_and_messages_stay_messages() -> None:
    file = written("p.jsonl", json.dumps("Once"), [HI])
    assert [p.history for p in read_prompts(file, raw=True)] == ["Once", (HI,)]


def test_arguments_of_calls_may_be_json_text() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [HI, {"role": "assistant", "content": None, "tool_calls": [call]}]
    (prompt,) = read_prompts(written("p.jsonl", messages))
    assert prompt.history[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}  # type: ignore[index]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "p.jsonl, line 1: is not JSON"),
        ('"\\ud800"', r"line 1: half a character ('\ud800')"),
        (7, "messages must be a list"),
        ([], "line 1: messages is empty"),
        ([{"content": "x"}], "message 0 has no role"),
        ({"prompt": 7}, "prompt must be a text, not 7"),
        ({"prompt": ""}, "prompt must be a text"),
        ({"messages": [HI], "tools": 1}, "tools must be a list"),
        ({"messages": [HI], "template_options": 1}, "template_options must be an object"),
        ({}, "line 1: holds no prompt or messages, only []"),
        ({"promt": "y"}, "only ['promt']; did you mean 'prompt'?"),
    ],
)
def test_other_lines_are_refused(line: Any, said: str) -> None:
    with pytest.raises(mlxfill.InputError) as error:
        read_prompts(written("p.jsonl", line))
    assert said in str(error.value)


def test_empty_missing_and_doubled() -> None:
    with pytest.raises(mlxfill.InputError, match=r"no prompts in it"):
        read_prompts(written("p.txt", "", "  "))
    with pytest.raises(mlxfill.InputError, match=r"none.txt: No such file"):
        read_prompts("none.txt")
    with pytest.raises(mlxfill.InputError, match="two prompts have the id 'a'"):
        read_prompts(written("p.jsonl", *[{"id": "a", "prompt": "x"}] * 2))
    with pytest.raises(mlxfill.InputError, match="tools need the chat template"):
        read_prompts(written("p.jsonl", {"prompt": "x", "tools": [TOOL]}), raw=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60), suffix=st.sampled_from([".txt", ".jsonl"]))
def test_any_file_is_read_or_refused_in_one_line(text: str, suffix: str) -> None:
    file = Path(f"any{suffix}")
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    said = refusal(file)
    assert said is None or (len(said.splitlines()) == 1 and said.startswith("any."))


def refusal(file: Path) -> str | None:
    try:
        assert read_prompts(file)
    except mlxfill.InputError as error:
        return str(error)
    return None


TEMPLATES = {
    "{% for m in messages %}{{ m.content or '' }}\n{% endfor %}": "writes no tools",
    "{{ tools }}{% for m in messages %}{{ m.content or '' }}{% endfor %}": "writes no tool calls",
    "{% if tools %}{{ raise_exception('no tools!') }}{% endif %}{{ messages }}": "no tools!",
}


@pytest.mark.parametrize(("template", "said"), TEMPLATES.items(), ids=TEMPLATES.values())
def test_samples_that_a_template_has_no_place_for_are_left_out_and_named(
    plain: mlxfill.Engine, template: str, said: str
) -> None:
    samples = read_prompts(SAMPLES)
    assert unfit(samples, plain) == {}
    tokenizer = copy.deepcopy(plain.tokenizer._tokenizer)
    tokenizer.chat_template = template
    with engine_with(plain.model, tokenizer=tokenizer) as engine:
        left_out = unfit(samples, engine)
        plan, named = Plan(model="tiny", prompts=samples, arms=None, samples=True, limit=1).fitting(
            engine
        )
        with pytest.raises(mlxfill.MlxfillError, match=said):
            unfit([sample for sample in samples if sample.id in left_out], engine)
    withheld = {sample.id for sample in samples if sample.tools}
    if said == "writes no tool calls":
        withheld.remove("call-a-tool")
    assert set(left_out) == set(named) == withheld
    assert all(said in why for why in left_out.values())
    assert plan.turns == 1, "the limit counts those that are asked"
    assert plan.prompts[0].id not in left_out


def test_the_samples_are_prompts_with_and_without_tools() -> None:
    samples = read_prompts(SAMPLES)
    assert len(samples) >= 6
    assert {bool(sample.tools) for sample in samples} == {True, False}
