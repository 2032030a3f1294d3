"""``mlxfill generate --batch``: each line's answer once, whatever happens on the way."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mlxfill
from mlxfill.checkpoint.lock import CheckpointLock
from mlxfill_testing.installed import HEADER
from patience import AT_ALL

if TYPE_CHECKING:
    from mlxfill_testing.installed import FakeSite

REQUESTS: tuple[Any, ...] = (
    "hello",
    {"prompt": "hello there", "max_tokens": 3, "id": "short"},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "abc"}]}], "id": 7},
    {"prompt": "count", "temperature": 0.9, "seed": 4, "top_k": 20},
    {"prompt": [5, 6, 7], "logprobs": True},
    {"prompt": "count", "logit_bias": {"9": 50.0}, "max_tokens": 4},
    {"prompt": "days", "stop": "a", "repetition_penalty": 1.3},
    {"prompt": "tool", "tools": [{"type": "function", "function": {"name": "go"}}]},
    {"prompt": "nothing\u2028", "max_tokens": 0},  # no line ends there
)
RAISING = """
@mlxfill.hookimpl
def mlxfill_logits_processors(request):
    def process(tokens, logits):
        done = tokens.shape[0] - len(request.prompt_ids)
        {process}
        return logits
    return [process]
"""
COUNTING = """
import pathlib
most, now = 0, 0

@mlxfill.hookimpl
def mlxfill_observe(event):
    global most, now
    now += {{"request": 1, "finish": -1}}.get(event.kind, 0)
    most = max(most, now)
    pathlib.Path("most").write_text(str(most))
"""


def prompts(*requests: Any, name: str = "prompts.jsonl") -> Path:
    """A file of requests; bare text is a line as it is."""
    Path(name).write_text("".join(f"{json.dumps(r, ensure_ascii=False)}\n" for r in requests))
    return Path(name)


def answers(out: str = "out.jsonl") -> dict[int, dict[str, Any]]:
    """The whole lines of an output by their index; each index once."""
    lines = [json.loads(line) for line in Path(out).read_text().splitlines()]
    found = {line["index"]: line for line in lines}
    assert len(found) == len(lines)
    return found


def said(answer: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on the company or on the clock."""
    return {name: answer.get(name) for name in ("id", "digest", "text", "tokens", "finish_reason")}


@pytest.fixture
def batch(run: Any, model: str) -> Any:
    """Run a batch with the test model and few tokens."""

    def batch(*arguments: str, out: str = "out.jsonl", **given: Any) -> Any:
        plain = () if "--plugins" in arguments else ("--no-plugins",)
        command = ["generate", "--model", model, "-m", "12", "--batch", "prompts.jsonl", *plain]
        return run(*command, "--out", out, *arguments, **given)

    return batch


@pytest.fixture
def whole(batch: Any) -> dict[int, dict[str, Any]]:
    """The answers to ``REQUESTS`` of a run that nobody disturbed."""
    prompts(*REQUESTS)
    assert batch(out="whole.jsonl").code == 0
    return answers("whole.jsonl")


# --- answers ---------------------------------------------------------------------


def test_each_line_is_answered_as_by_a_run_of_its_own(whole: Any, model: str) -> None:
    with mlxfill.load(model, plugins=[]) as engine:
        for index, request in enumerate(REQUESTS):
            options: dict[str, Any] = (
                {"prompt": request} if isinstance(request, str) else dict(request)
            )
            identity = options.pop("id", None)
            asked = options.pop("messages", None) or options.pop("prompt")
            if isinstance(asked, str):
                asked = [{"role": "user", "content": asked}]
            elif asked[0] != 5:
                asked = [{"role": "user", "content": "abc"}]
            bias: dict[str, float] = options.pop("logit_bias", {})
            options["logit_bias"] = {int(token): value for token, value in bias.items()}
            alone = engine.generate(asked, **{"max_tokens": 12, **options}).as_dict()
            answer = whole[index]
            assert answer.get("id") == identity
            assert list(alone) == [n for n in answer if n not in {"index", "id", "digest"}]
            for name in ("text", "tokens", "finish_reason", "tool_calls"):
                assert answer[name] == alone[name]
    assert whole.keys() == set(range(len(REQUESTS)))


def test_answers_are_written_in_the_order_in_which_they_end(whole: Any) -> None:
    assert list(whole) != sorted(whole)
    assert list(whole).index(1) < list(whole).index(0)


def test_options_of_the_command_line_hold_for_every_line(batch: Any) -> None:
    prompts("a", {"prompt": "a", "max_tokens": 2}, {"prompt": "a", "seed": 2})
    batch("--temp", "1", "--seed", "5", "--system", "be", "--logprobs")
    answered = answers()
    assert [len(answered[i]["tokens"]) for i in range(3)] == [12, 2, 12]
    assert [answered[i]["stats"]["seed"] for i in range(3)] == [5, 5, 2]
    assert answered[0]["tokens"] != answered[2]["tokens"]
    assert all("logprobs" in answer for answer in answered.values())
    prompts({"messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "a"}]})
    batch("--temp", "1", "--seed", "5", out="other.jsonl")
    assert answers("other.jsonl")[0]["tokens"] == answered[0]["tokens"]


def test_raw_prompts_are_continued_as_they_are(batch: Any) -> None:
    prompts("abc")
    batch("--raw")
    assert answers()[0]["stats"]["prompt_tokens"] == 3


def test_requests_come_through_a_pipe_too(whole: Any, run: Any, model: str) -> None:
    text = Path("prompts.jsonl").read_text()
    command = ["generate", "--model", model, "-m", "12", "--no-plugins", "--batch", "-"]
    assert run(*command, "--out", "out.jsonl", stdin=f"\n{text}\n\n").code == 0
    assert {index: said(answer) for index, answer in answers().items()} == {
        index: said(answer) for index, answer in whole.items()
    }


def test_answers_go_to_standard_output_too(batch: Any) -> None:
    prompts("hello", {"prompt": "hello there", "id": "two"})
    for _ in range(2):
        outcome = batch(out="-")
        assert outcome.code == 0
        assert sorted(json.loads(line)["index"] for line in outcome.out.splitlines()) == [0, 1]
        assert outcome.err.splitlines()[-1].endswith("-> standard output")
    assert not Path("-").exists()


def test_a_bar_on_a_terminal_leaves_standard_output_alone(
    batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts("hello")
    monkeypatch.setenv("FORCE_COLOR", "1")
    (line,) = batch(out="-").out.splitlines()
    assert json.loads(line)["index"] == 0


@pytest.mark.parametrize("rows", [1, 3])
def test_no_more_requests_are_open_than_are_answered(batch: Any, site: FakeSite, rows: int) -> None:
    site.add("zz", HEADER + COUNTING.replace("{{", "{").replace("}}", "}"))
    prompts(*REQUESTS)
    assert batch("--plugins", "zz", "--max-rows", str(rows)).code == 0
    assert Path("most").read_text() == str(rows)


def test_progress_is_a_line_now_and_then_or_a_bar(
    batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts(*REQUESTS)
    outcome = batch()
    assert outcome.out == ""
    *progress, last = outcome.err.splitlines()
    assert 1 < len(progress) <= 10
    assert all(re.fullmatch(r"\d/9 done, \d+ tokens, .* tokens/s, \d rows", p) for p in progress)
    count = sum(len(answer["tokens"]) for answer in answers().values())
    assert re.fullmatch(rf"9/9 done, {count} tokens, \S+ tokens/s -> out.jsonl", last)
    assert batch("--quiet", out="quiet.jsonl").err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = re.sub(r"\x1b\[[0-9;?]*\w", "", batch(out="shown.jsonl").err)
    assert re.search(r"9/9 \d rows", shown)


# --- going on --------------------------------------------------------------------


@pytest.mark.usefixtures("whole")
def test_what_is_answered_is_not_done_again(batch: Any) -> None:
    before = Path("whole.jsonl").read_bytes()
    other = batch("--model", "nowhere", out="whole.jsonl")
    assert "answers a request with another prompt, option or model" in other.complaint
    again = batch(out="whole.jsonl")
    assert (again.code, again.err) == (0, "all 9 requests are answered in whole.jsonl\n")
    assert Path("whole.jsonl").read_bytes() == before
    prompts(*REQUESTS, "one more")
    assert batch(out="whole.jsonl").code == 0
    assert Path("whole.jsonl").read_bytes().startswith(before)
    assert answers("whole.jsonl").keys() == set(range(10))


@pytest.mark.parametrize("part", [0.001, 0.1, 0.35, 0.6, 0.85, 0.9999])
def test_a_last_line_that_was_cut_is_done_again(batch: Any, whole: Any, part: float) -> None:
    written = Path("whole.jsonl").read_bytes()
    Path("out.jsonl").write_bytes(written[: round(len(written) * part)])
    Path("out.jsonl").chmod(0o640)
    assert batch().code == 0
    assert Path("out.jsonl").stat().st_mode & 0o777 == 0o640
    assert {index: said(answer) for index, answer in answers().items()} == {
        index: said(answer) for index, answer in whole.items()
    }


def test_a_killed_batch_goes_on(batch: Any, model: str) -> None:
    prompts(*[{"prompt": f"request {n}", "max_tokens": 50 + n} for n in range(20)])
    assert batch("--max-rows", "3", out="whole.jsonl").code == 0
    command = [sys.executable, "-m", "mlxfill", "generate", "--model", model, "-m", "12"]
    rest = ["--no-plugins", "--batch", "prompts.jsonl", "--out", "out.jsonl", "--max-rows", "3"]
    out, counts = Path("out.jsonl"), [0]
    for _ in range(2):
        wanted = counts[-1] + 2
        with subprocess.Popen([*command, *rest], stderr=subprocess.PIPE) as process:
            deadline = time.monotonic() + AT_ALL
            while process.poll() is None and time.monotonic() < deadline:
                if out.exists() and out.read_bytes().count(b"\n") >= wanted:
                    break
                time.sleep(0.001)
            process.kill()
        counts.append(out.read_bytes().count(b"\n"))
        assert counts[-2] < counts[-1] < 20
    assert batch("--max-rows", "3").code == 0
    expected, found = answers("whole.jsonl"), answers()
    assert found.keys() == expected.keys()
    assert all(said(found[index]) == said(expected[index]) for index in expected)


def test_ctrl_c_ends_with_whole_answers_and_says_how_to_go_on(
    batch: Any, site: FakeSite, whole: Any
) -> None:
    interrupt = "__import__('signal').raise_signal(__import__('signal').SIGINT)"
    site.add("zz", HEADER + RAISING.format(process=f"done == 7 and {interrupt}"))
    outcome = batch("--plugins", "zz", "--max-rows", "2")
    assert outcome.code == 130
    assert outcome.err.splitlines()[-1] == "go on with: the same command"
    assert 0 < len(answers()) < 9
    assert batch().code == 0
    assert {index: said(answer) for index, answer in answers().items()} == {
        index: said(answer) for index, answer in whole.items()
    }


def test_a_request_that_fails_is_told_and_tried_again(
    batch: Any, site: FakeSite, whole: Any
) -> None:
    fails = "request.limits.max_tokens == 3 and int('planted')"
    site.add("zz", HEADER + RAISING.format(process=fails))
    outcome = batch("--plugins", "zz")
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1].startswith('1 failed (see "error")')
    found = answers()
    assert found[1].keys() == {"index", "id", "digest", "error"}
    assert found[1]["error"].startswith("plugin 'zz' failed in its logits processor: ")
    assert all(said(found[index]) == said(whole[index]) for index in whole if index != 1)
    again = batch()
    assert again.code == 0
    assert again.err.splitlines()[-1].startswith("9/9 done, 3 tokens")
    assert said(answers()[1]) == said(whole[1])


# --- refusals --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "is not JSON: "),
        ("[" * 100_000, "is not JSON: "),
        ("hello", "is not JSON: "),
        ("3", "must be a string or an object with prompt or messages"),
        ('{"max_tokens": 3}', "give either prompt or messages"),
        ('{"prompt": "a", "messages": []}', "give either prompt or messages"),
        ('{"prompt": 3}', "prompt must be a string or a list of token ids"),
        ('""', "the prompt is empty: at least one token is needed"),
        ('{"prompt": []}', "the prompt is empty: at least one token is needed"),
        ('{"messages": [{"content": "a"}]}', "messages: message 0 has no role: {'content': 'a'}"),
        ('{"prompt": "a", "tools": {}}', "tools: must hold a list of tools in OpenAI's format"),
        ('{"prompt": "a", "max_token": 3}', "unknown option 'max_token'; did you mean"),
        ('{"prompt": "a", "max_tokens": -2}', "max_tokens must be a whole number of at least -1"),
        ('{"prompt": "a", "temperature": "hot"}', "temperature must be 0 to 1000000, not 'hot'"),
        ('{"prompt": "a", "cancel": true}', "cancel is for programs: leave it out"),
        ('{"prompt": "a", "id": []}', "id must be a string or a whole number, not []"),
        ('"\\ud800"', "holds half of a surrogate pair: not UTF-8"),
        # What only the model knows.
        ('{"prompt": [1, 4000]}', "prompt id 4000 is outside the vocabulary 0 to "),
        (json.dumps("a" * 5000), "tokens; the model's context is 4096"),
        ('{"prompt": "a", "top_k": 4000}', "top_k must be below the vocabulary size"),
        ('{"prompt": "a", "adapters": "sql"}', "sql"),
        ('{"prompt": "a", "schema": {"type": "object"}}', "schema needs a plugin that holds"),
    ],
)
def test_a_bad_line_is_named_before_anything_is_computed(
    batch: Any, line: str, complaint: str
) -> None:
    Path("prompts.jsonl").write_text(f'"hello"\n\n{line}\n"hello"\n')
    outcome = batch()
    assert outcome.code == 2
    where, _, what = outcome.complaint.partition(", line 3")
    assert where == "prompts.jsonl"
    assert complaint in what
    assert len(outcome.complaint) < 300
    assert not Path("out.jsonl").exists() or Path("out.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--max-rows", "0"], "--max-rows must be 1 or more, not 0"),
        (["hello"], "--batch answers each line of a file as JSON: leave out the prompt"),
        (["--messages", "x"], "--batch answers each line of a file as JSON: leave out --messages"),
        (["--json"], "--batch answers each line of a file as JSON: leave out --json"),
        (["--checkpoint", "x"], "leave out --checkpoint"),
        (["--top-p", "3"], "prompts.jsonl, line 1: top_p must be 0 to 1, not 3.0"),
        (["--batch", "none.jsonl"], "--batch none.jsonl: No such file or directory"),
        (["--out", "nowhere/out.jsonl"], "--out nowhere/out.jsonl: No such file or directory"),
        (["--out", "."], "--out .: is a folder"),
        (["--out", "/dev/full"], "--out /dev/full: is no regular file"),
        (["--out", "pipe"], "--out pipe: is no regular file, which could be read again; -: "),
    ],
)
def test_wrong_use_is_one_line(batch: Any, arguments: list[str], complaint: str) -> None:
    prompts("hello")
    os.mkfifo("pipe")
    outcome = batch(*arguments)
    assert outcome.code == 2
    assert complaint in outcome.complaint


def test_options_that_need_each_other(run: Any) -> None:
    prompts("hello")
    asked = {
        (
            "--batch",
            "prompts.jsonl",
        ): "--batch prompts.jsonl needs --out FILE for the answers; -: standard output",
        ("hello", "--out", "x"): "--out needs --batch FILE",
        ("hello", "--max-rows", "2"): "--max-rows needs --batch FILE",
    }
    for arguments, complaint in asked.items():
        outcome = run("generate", *arguments)
        assert (outcome.code, outcome.complaint) == (2, complaint)
    Path("prompts.jsonl").write_text("\n")
    outcome = run("generate", "--batch", "prompts.jsonl", "--out", "x")
    assert (outcome.code, outcome.complaint) == (2, "--batch prompts.jsonl: holds no request")


@pytest.mark.parametrize(
    "content",
    [
        "my notes",
        '{"index": 0}\n',
        '["index"]\n',
        '{"index": 0, "digest": "x"}\n',
        '{"index": 99, "digest": "x"}\n',
        '{"index": 0, "text": "cut in the\n{"index": 1, "text": "middle"}\n',
    ],
)
def test_a_foreign_output_is_refused_and_left_alone(batch: Any, content: str) -> None:
    prompts("hello")
    Path("out.jsonl").write_text(content)
    outcome = batch()
    assert outcome.code == 2
    assert outcome.complaint.startswith("--out out.jsonl, line 1: ")
    assert Path("out.jsonl").read_text() == content


WRONG_ANSWERS: dict[str, tuple[Any, ...]] = {
    "text": (None, 5, ["x"], True),
    "tokens": (None, "5", [1.5], [True], {}),
    "index": (None, True, -1, 0.0, "0", [0], 99),
    "digest": (None, 5, [], "x"),
    "error": (5, [], None),
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG_ANSWERS.items() for value in values]
)
def test_an_answer_with_another_content_is_refused_and_left_alone(
    batch: Any, key: str, value: Any
) -> None:
    prompts("hello")
    assert batch().code == 0
    answer = answers()[0]
    if key == "error":
        del answer["text"]
    Path("out.jsonl").write_text(json.dumps({**answer, key: value}) + "\n")
    before = Path("out.jsonl").read_bytes()
    outcome = batch()
    assert outcome.code == 2
    assert outcome.complaint.startswith("--out out.jsonl, line 1: ")
    assert Path("out.jsonl").read_bytes() == before


@pytest.mark.usefixtures("whole")
def test_the_answers_of_other_prompts_or_options_are_refused(batch: Any) -> None:
    before = Path("whole.jsonl").read_bytes()
    for arguments, requests in (
        ([], ["hallo", *REQUESTS[1:]]),
        ([], REQUESTS[::-1]),
        ([], REQUESTS[:5]),
        (["--temp", "0.5"], REQUESTS),
        (["--system", "be"], REQUESTS),
    ):
        prompts(*requests)
        outcome = batch(*arguments, out="whole.jsonl")
        assert outcome.code == 2
        assert "answers a request with another prompt, option or model" in outcome.complaint
        assert Path("whole.jsonl").read_bytes() == before


def test_a_model_that_is_not_there_is_named(batch: Any) -> None:
    prompts("hello")
    outcome = batch("--model", "nowhere")
    assert outcome.code == 1
    assert outcome.complaint.startswith("no model folder 'nowhere'")
    assert batch().code == 0


@pytest.mark.usefixtures("whole")
def test_a_request_that_is_answered_twice_is_refused(batch: Any) -> None:
    with Path("whole.jsonl").open("a") as file:
        file.write(Path("whole.jsonl").read_text().splitlines()[0] + "\n")
    outcome = batch(out="whole.jsonl")
    assert outcome.code == 2
    assert re.search(r"line 10: answers request \d again", outcome.complaint)


def test_an_output_that_another_process_writes_is_refused(batch: Any) -> None:
    prompts("hello")
    with CheckpointLock(Path("out.jsonl")):
        outcome = batch()
    assert (outcome.code, outcome.complaint) == (2, "--out out.jsonl: is in use by another process")


def test_a_file_that_takes_no_more_is_one_line_and_goes_on_later(batch: Any, whole: Any) -> None:
    prompts(*REQUESTS)
    size = len(Path("whole.jsonl").read_bytes())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, before[1]))
    try:
        outcome = batch()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1] == "error: --out out.jsonl: File too large"
    assert batch().code == 0
    assert {i: said(a) for i, a in answers().items()} == {i: said(a) for i, a in whole.items()}
