"""``mlxfill bench forecast``: recorded replies, written by a target that says what was recorded."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from attrs import define

import mlxfill
from mlxfill.cli import main
from mlxfill_bench import SHIPPED
from mlxfill_bench.forecast.curves import curve_of
from mlxfill_bench.forecast.recorded import read_recorded
from mlxfill_bench.forecast.replies import KINDS, Reply, reply_of
from mlxfill_bench.forecast.running import foresee, open_forecast
from mlxfill_bench.forecast.summary import shares, unforeseen
from mlxfill_testing import Guest, engine_with

FOLDER = Path(str(files("mlxfill_model_tiny"))) / "models" / "target"
CALL = {"function": {"name": "read", "arguments": {"path": "a.py"}}}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """That of the tiny model."""
    return mlxfill.load_tokenizer(FOLDER)


@pytest.fixture(scope="module")
def replies(tokenizer: Any) -> list[Reply]:
    """All of one shipped session."""
    recorded = read_recorded(SHIPPED)[0]
    with open_forecast(tokenizer, ["plain"], mlxfill.load_config({}), curve_of("free")) as (
        _,
        arms,
    ):
        found = [reply_of(arms["plain"], recorded.session, turn) for turn in recorded.turns]
    return [each for each in found if each]


def test_the_target_says_what_was_recorded_whatever_is_guessed(
    tokenizer: Any,
    replies: list[Reply],
) -> None:
    names = ["spec-ngram", "fill-strict+fill-echo+spec-ngram"]
    with open_forecast(tokenizer, names, mlxfill.load_config({}), curve_of("free")) as (
        model,
        arms,
    ):
        found = foresee(model, arms, replies)
    for each in (each for arm in names for each in found[arm]):
        assert each.strayed == 0
        assert len(each.origins) == len(each.reply.ids)
        assert sum(each.forwards.values()) <= len(each.reply.ids) + 1
    assert any("ngram" in each.origins for each in found["spec-ngram"])


def test_costs_are_those_of_the_curve(
    tokenizer: Any,
    replies: list[Reply],
) -> None:
    config = mlxfill.load_config({"gate": {"enabled": False}})
    with open_forecast(tokenizer, ["spec-ngram"], config, curve_of("free")) as (model, arms):
        found = foresee(model, arms, replies)
    assert all(each.steps == each.forwards for each in found["spec-ngram"])
    total = shares(found)[0]
    assert total.speed == total.tokens_per_forward > 1
    assert total.tokens == sum(len(reply.ids) for reply in replies)


def test_where_a_forward_of_two_costs_two_nothing_is_guessed(
    tokenizer: Any,
    replies: list[Reply],
) -> None:
    config = mlxfill.load_config({})
    with open_forecast(tokenizer, ["spec-ngram"], config, curve_of("2:2,4:4")) as (model, arms):
        found = foresee(model, arms, replies)
    assert {origin for each in found["spec-ngram"] for origin in each.origins} == {"sampled"}
    stretch = unforeseen(found["spec-ngram"], 1)[0]
    assert len(stretch.ids) == max(len(reply.ids) for reply in replies)


def test_plugins_see_the_tools_of_a_session(
    tokenizer: Any,
    replies: list[Reply],
) -> None:
    config = mlxfill.load_config({"trust": {"assert": ["fill-strict"]}})
    with open_forecast(tokenizer, ["fill-strict"], config, curve_of("free")) as (model, arms):
        found = foresee(model, arms, replies)["fill-strict"]
    assert any(each.injected for each in found)
    assert all(each.origins[at] != "sampled" for each in found for at in each.injected)
    assert [each.strayed for each in found] == [0] * len(found)


@define
class Wrong:
    """Asserts two ids of the prompt after the third token of a reply."""

    request: mlxfill.Request
    name: str = "wrong"
    window: int = 1

    def propose(self, view: mlxfill.TokenView) -> mlxfill.Proposal | None:
        if view.length != len(self.request.prompt_ids) + 3:
            return None
        return mlxfill.Proposal(self.request.prompt_ids[:2], mlxfill.Policy.ASSERT, "wrong")

    def observe(self, ids: Any) -> None:
        pass

    def resolved(self, proposal: mlxfill.Proposal, accepted: int) -> None:
        pass


def test_asserted_tokens_that_were_not_recorded_end_the_forecast_of_a_reply(
    tokenizer: Any,
    replies: list[Reply],
) -> None:
    with open_forecast(tokenizer, ["plain"], mlxfill.load_config({}), curve_of("free")) as (
        model,
        _,
    ):
        wrong = engine_with(
            model, Guest(sources=[Wrong], name="wrong"), tokenizer=tokenizer, trusted=["wrong"]
        )
        with wrong:
            found = foresee(model, {"wrong": wrong}, replies[:1])["wrong"][0]
    assert found.strayed == len(replies[0].ids) - 3
    assert len(found.origins) == len(replies[0].ids)
    assert sum(found.forwards.values()) >= len(replies[0].ids) - 3


def test_thoughts_text_and_calls_are_told_apart(
    tokenizer: Any,
    replies: list[Reply],
) -> None:
    called = replies[0]
    parts = {
        kind: tokenizer.decode(
            [i for i, k in zip(called.ids, called.kinds, strict=True) if k == kind]
        )
        for kind in KINDS
    }
    assert "I must see src/token.py" in parts["reasoning"]
    assert "read_file" in parts["calls"]
    assert "read_file" not in parts["reasoning"] + parts["text"]


HISTORY = [
    {"role": "user", "content": "Read a.py."},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "x = 1"},
    {"role": "assistant", "content": "It sets x."},
]
LOG: dict[str, Any] = {
    "request": {"model": "m", "messages": HISTORY[:-1], "tools": []},
    "response": {"choices": [{"message": HISTORY[-1]}]},
}
BLOCKS = [
    {"type": "summary", "summary": "Reading"},
    {"type": "user", "message": {"role": "user", "content": "Read a.py."}},
    {
        "type": "assistant",
        "message": {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "read", "input": {"path": "a.py"}}],
        },
    },
    {
        "type": "user",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "1", "content": "x = 1"}],
        },
    },
    {
        "type": "assistant",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "It sets x."}]},
    },
]
ITEMS = [
    {"type": "session_meta", "payload": {"id": "s"}},
    {
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Read a.py."}],
        },
    },
    {
        "type": "response_item",
        "payload": {
            "type": "function_call",
            "name": "read",
            "arguments": '{"path": "a.py"}',
            "call_id": "1",
        },
    },
    {
        "type": "response_item",
        "payload": {"type": "function_call_output", "call_id": "1", "output": "x = 1"},
    },
    {
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "It sets x."}],
        },
    },
]


@pytest.mark.parametrize(
    ("name", "lines", "turns"),
    [
        ("messages.jsonl", [{"messages": HISTORY}], 2),
        ("list.jsonl", [HISTORY], 2),
        ("log.jsonl", [LOG], 1),
        ("flat.jsonl", [{**LOG["request"], **LOG["response"]}], 1),
        ("run.traj", [{"history": HISTORY, "trajectory": [], "info": {}}], 2),
        ("blocks.jsonl", BLOCKS, 2),
        ("items.jsonl", ITEMS, 2),
    ],
)
def test_every_form_gives_the_same_session(name: str, lines: list[Any], turns: int) -> None:
    Path(name).write_text("\n".join(map(json.dumps, lines)), "utf-8")
    (recorded,) = read_recorded(Path(name))
    assert len(recorded.turns) == turns
    messages = recorded.session.messages
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert [message["content"] or "" for message in messages] == [
        "Read a.py.",
        "",
        "x = 1",
        "It sets x.",
    ]
    assert messages[1]["tool_calls"][0]["function"] == CALL["function"]
    assert recorded.turns[-1].recorded == messages[-1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "is not JSON"),
        ("[1]", "messages must be a list of objects"),
        ('{"prompt": "a"}', "no session"),
        ('{"messages": 3}', "messages must be a list"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "no reply"),
        ("", "no reply"),
    ],
)
def test_a_file_of_another_form_is_named(text: str, said: str) -> None:
    Path("odd.jsonl").write_text(text, "utf-8")
    with pytest.raises(mlxfill.InputError, match=said) as raised:
        read_recorded(Path("odd.jsonl"))
    assert "odd.jsonl" in str(raised.value)


@pytest.mark.parametrize("points", ["8", "8:x", "0:1", "2:0", "2:inf", "2:-1", ":"])
def test_a_point_that_is_none_is_named(points: str) -> None:
    with pytest.raises(mlxfill.InputError, match=r"--curve.*metal-like"):
        curve_of(f"{points},4:2" if ":" not in points else points)


def test_points_and_names_make_curves() -> None:
    assert curve_of("8:1.5").cost(8) == 1.5
    assert curve_of("metal-like").cost(32) == 2.58
    assert curve_of("free").cost(32) == 1.0


def asked(*arguments: str) -> int:
    """The exit code of ``mlxfill bench forecast`` on two shipped sessions."""
    lines = SHIPPED.read_text("utf-8").splitlines()[:2]
    Path("sessions.jsonl").write_text("\n".join(lines), "utf-8")
    return main(["bench", "forecast", "sessions.jsonl", "--tokenizer", str(FOLDER), *arguments])


def test_the_command_prints_a_table_and_writes_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked("--arms", "ngram", "--limit", "1", "--report", "page.html") == 0
    said = capsys.readouterr().out
    assert "spec-ngram" in said
    assert "did not foresee" in said
    page = Path("page.html").read_text("utf-8")
    assert 'class="t ngram' in page
    assert "src/token.py" in re.sub("<[^>]+>", "", page)


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked("--arms", "ngram", "--limit", "1", "--curve", "free", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert {arm["kind"] for arm in data["arms"]} == {"all", *KINDS}
    assert all(arm["speed"] >= 1 for arm in data["arms"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tokenizer", "nowhere"], "nowhere"),
        (["--arms", "draft=tiny-draft"], "no model to draft with"),
        (["--curve", "8:0"], "--curve"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(*arguments) != 0
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
