"""``mlxfill chat``, with the lines of a user on standard input."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import mlxfill
from mlxfill.cli.conversation import Conversation, as_message
from mlxfill.plugins import Catalogue, scan
from mlxfill.request.results import Result, Stats
from mlxfill_testing import engine_with, shared_model
from mlxfill_testing.installed import HEADER

if TYPE_CHECKING:
    from mlxfill_testing.installed import FakeSite

CUT = "stopped at max_tokens 8: -m N allows more\n"
INTERRUPT = (
    HEADER
    + """
import signal

class Source:
    seen = 0

    def observe(self, ids):
        Source.seen += 1
        if Source.seen == 3:
            signal.raise_signal(signal.SIGINT)

    def propose(self, view):
        return None

    def resolved(self, proposal, accepted):
        pass

@mlxfill.hookimpl
def mlxfill_proposal_sources(request):
    return [Source()]
"""
)


@pytest.fixture
def chat(run: Any, model: str) -> Any:
    """Say some lines; the test model answers with at most eight tokens."""

    def chat(*lines: str, options: tuple[str, ...] = ("--no-plugins",)) -> Any:
        said = "".join(f"{line}\n" for line in lines)
        return run("chat", "--model", model, "--max-tokens", "8", *options, stdin=said)

    return chat


def replies(model: str, *turns: str, system: str | None = None) -> list[str]:
    """What the model answers when every prompt is processed anew."""
    messages = [{"role": "system", "content": system}] if system else []
    answers: list[str] = []
    with mlxfill.load(model, plugins=[]) as engine:
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            answers.append(engine.generate(messages, max_tokens=8).text)
            messages.append({"role": "assistant", "content": answers[-1]})
    return answers


def printed(*answers: str) -> str:
    return "".join(answer if answer.endswith("\n") else f"{answer}\n" for answer in answers)


def test_each_line_is_answered_knowing_those_before(chat: Any, model: str) -> None:
    outcome = chat("hello", "", "and then")
    assert (outcome.code, outcome.err) == (0, CUT * 2)
    assert outcome.out == printed(*replies(model, "hello", "and then"))


def test_caches_are_kept_from_turn_to_turn(chat: Any) -> None:
    outcome = chat("hello", "/stats", "and then", "/stats")
    first, second = re.findall(r"^ *\d+ .*$", outcome.err, re.MULTILINE)
    assert "cached" not in first
    prompt, cached = map(int, re.findall(r"(\d+) \((\d+) cached\)", second)[0])
    assert 8 < cached < prompt


def test_reset_forgets_and_system_starts_anew(chat: Any, model: str) -> None:
    outcome = chat("hello", "/reset", "hello", "/system be", "hello", "/system", "hello")
    plain, told = replies(model, "hello"), replies(model, "hello", system="be")
    assert outcome.out == printed(*plain, *plain, *told, *plain)
    assert chat("hello", options=("--no-plugins", "--system", "be")).out == printed(*told)


@pytest.mark.parametrize("word", ["/quit", "/exit"])
def test_quit_leaves_at_once(chat: Any, word: str) -> None:
    assert chat(word, "hello").out == ""


def test_other_words_with_a_slash_are_explained(chat: Any) -> None:
    outcome = chat("/stats", "/hlp", "/help")
    assert outcome.code == 0
    assert "nothing was said yet" in outcome.err
    assert "no command /hlp" in outcome.err
    assert outcome.err.count("/reset ") == 2


def test_a_turn_that_cannot_be_answered_is_told_and_forgotten(chat: Any, model: str) -> None:
    outcome = chat("hello", "a" * 5000, "and then")
    assert outcome.code == 1
    assert outcome.err.startswith(f"{CUT}error: the prompt has ")
    assert outcome.out == printed(*replies(model, "hello", "and then"))


def test_bytes_that_are_no_text_are_refused(run: Any, model: str) -> None:
    outcome = run("chat", "--model", model, "--no-plugins", stdin=b"ab\xff\n")
    assert (outcome.code, outcome.complaint) == (2, "standard input is not UTF-8 (at byte 2)")


def test_ctrl_c_ends_the_reply_and_not_the_program(chat: Any, model: str, site: FakeSite) -> None:
    site.add("zz", INTERRUPT)
    outcome = chat("hello", "/reset", "hello", options=("--plugins", "zz"))
    assert outcome.code == 0
    cut, whole = outcome.out[: -len(printed(*replies(model, "hello")))], replies(model, "hello")[0]
    assert outcome.out.endswith(printed(whole))
    assert whole.startswith(cut.removesuffix("\n"))
    assert len(cut) <= len(whole)


def test_origins_are_counted_after_each_reply(chat: Any) -> None:
    outcome = chat("hello", options=("--no-plugins", "--origins"))
    assert re.fullmatch(rf"{CUT}origins: sampled \d+\n", outcome.err)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--top-p", "2"], "--top-p must be 0 to 1, not 2.0"),
        (["--tools", "none.json"], "--tools none.json: No such file or directory"),
        (["hello"], "hello"),
    ],
)
def test_wrong_use_is_one_line(run: Any, model: str, options: list[str], complaint: str) -> None:
    outcome = run("chat", "--model", model, *options)
    assert outcome.code == 2
    assert complaint in outcome.complaint


# --- the conversation itself -----------------------------------------------------


@pytest.mark.parametrize("kept_by_hand", [{}, {"kv_bits": 8, "kv_group_size": 32}])
def test_a_template_that_rewrites_earlier_turns_costs_only_the_cache(
    kept_by_hand: dict[str, int],
) -> None:
    with engine_with(shared_model("llama", head_dim=32)) as engine:
        conversation = Conversation(engine, options={"max_tokens": 6, **kept_by_hand})
        conversation.close(conversation.open("hello"))
        again = conversation.close(conversation.open("and then"))
        assert again.stats.cached_tokens > 5
        conversation.messages[0] = {"role": "user", "content": "other words"}
        result = conversation.close(conversation.open("and more"))
        assert result.stats.cached_tokens <= 1  # the mark of the user
        assert len(result.tokens) > 0


class Tokenizer:
    """The mark that mlx-lm's wrapper knows of a model."""

    tool_call_start = "<call>"


TOKENIZER: Any = Tokenizer()


def reply(text: str, calls: tuple[Any, ...] = (), reasoning: str = "") -> Result:
    whole = f"<think>{reasoning}</think>{text}" if reasoning else text
    return Result(
        whole, [], [], "stop", Stats(), tool_calls=list(calls), reasoning=reasoning, content=text
    )


def test_reasoning_is_kept_apart() -> None:
    message = as_message(TOKENIZER, reply("so", reasoning="\nwhy\n"))
    assert message == {"role": "assistant", "content": "so", "reasoning_content": "why"}
    assert as_message(TOKENIZER, reply("so")) == {"role": "assistant", "content": "so"}


def test_tool_calls_are_kept_apart() -> None:
    call = {"name": "go", "arguments": {"to": "x"}}
    message = as_message(TOKENIZER, reply("I go.\n<call>...</call>", (call,)))
    assert message == {
        "role": "assistant",
        "content": "I go.",
        "tool_calls": [{"type": "function", "function": call}],
    }


def test_without_the_plugin_for_servers_a_url_is_one_line(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxfill.plugins.scan", lambda: Catalogue({}, {}, {}, {}, []))
    outcome = run("chat", "--url", "http://127.0.0.1:1")
    assert outcome.code == 2
    assert outcome.complaint == "chat --url comes with a plugin: pip install mlxfill-serve"


def test_a_broken_plugin_for_servers_is_named(
    run: Any, site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add("zz-talk", "raise OSError('gone')", chat=["url"])
    others = [each for each in scan().chat["url"] if each.distribution == "mlxfill-zz-talk"]
    monkeypatch.setattr("mlxfill.plugins.scan", lambda: Catalogue({}, {}, {}, {"url": others}, []))
    outcome = run("chat", "--url", "http://127.0.0.1:1")
    assert outcome.code == 2
    assert "(mlxfill-zz-talk 1.0, entry point mlxfill_zz_talk)" in outcome.complaint
    assert "cannot be imported: OSError: gone" in outcome.complaint


def test_two_plugins_for_servers_are_named(run: Any, site: FakeSite) -> None:
    site.add("zz-talk", chat=["url"])
    outcome = run("chat", "--url", "http://127.0.0.1:1")
    assert outcome.code == 2
    assert "chat option 'url' is claimed more than once" in outcome.complaint
