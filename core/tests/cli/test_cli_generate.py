"""``mlxfill generate``: what is read, what is printed where, and what wrong use gets."""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mlxfill
from mlxfill.plugins import Catalogue
from mlxfill_testing.installed import HEADER

if TYPE_CHECKING:
    from mlxfill_testing.installed import FakeSite

ANSI = re.compile(r"\x1b\[[0-9;]*m")
SOURCE = """
class Source:
    def __init__(self, request):
        self.request = request

    def observe(self, ids):
        {observe}

    def propose(self, view):
        {propose}

    def resolved(self, proposal, accepted):
        pass

@mlxfill.hookimpl
def mlxfill_proposal_sources(request):
    return [Source(request)]
"""


def plugin(propose: str = "return None", observe: str = "pass") -> str:
    return HEADER + SOURCE.format(propose=propose, observe=observe)


def proposing(ids: list[int]) -> str:
    """A plugin that knows the whole reply."""
    known = f"done = view.length - len(self.request.prompt_ids); rest = {ids}[done:]"
    answer = "mlxfill.Proposal(tuple(rest), mlxfill.Policy.VERIFY, 'zz')"
    return plugin(f"{known}; return {answer} if len(rest) > 1 else None")


@pytest.fixture
def ask(run: Any, model: str) -> Any:
    """Run ``generate`` with the test model and few tokens."""

    def ask(*arguments: str, **given: Any) -> Any:
        return run("generate", "--model", model, "--max-tokens", "12", *arguments, **given)

    return ask


@pytest.fixture
def result(ask: Any) -> Any:
    """The JSON of a run."""

    def result(*arguments: str, **given: Any) -> Any:
        outcome = ask(*arguments, "--json", **given)
        assert (outcome.code, outcome.err) == (0, "")
        return json.loads(outcome.out)

    return result


def file(name: str, content: Any) -> str:
    """A file in the working folder."""
    Path(name).write_text(content if isinstance(content, str) else json.dumps(content))
    return name


# --- output ----------------------------------------------------------------------


def test_text_goes_to_stdout_and_figures_to_stderr(ask: Any, model: str) -> None:
    with mlxfill.load(model, plugins=[]) as engine:
        messages = [{"role": "user", "content": "hello"}]
        expected = engine.generate(messages, max_tokens=12)
    outcome = ask("hello", "--no-plugins")
    assert outcome.code == 0
    assert outcome.out == f"{expected.text}\n"
    head, _, row, _ = outcome.err.splitlines()
    assert head.split("  ")[0] == "tokens"
    assert row.split()[0] == str(len(expected.tokens))


def test_a_reply_cut_at_its_limit_says_so(ask: Any) -> None:
    cut = "stopped at max_tokens 12: -m N allows more"
    assert ask("hello", "--no-plugins").err.splitlines()[-1] == cut
    stopped = ask("hello", "--no-plugins", "--stop", ask("hello", "--quiet").out[4:6])
    assert "max_tokens" not in stopped.err


def test_quiet_prints_the_text_only(ask: Any) -> None:
    assert ask("hello", "--quiet").err == ""
    assert ask("hello", "-q").out == ask("hello").out


def test_json_is_one_line_with_the_whole_result(ask: Any) -> None:
    outcome = ask("hello", "--json")
    assert outcome.out.count("\n") == 1
    data = json.loads(outcome.out)
    assert list(data) == [
        "text",
        "reasoning",
        "content",
        "tokens",
        "origins",
        "finish_reason",
        "tool_calls",
        "faults",
        "stats",
    ]
    assert len(data["tokens"]) == len(data["origins"]) == data["stats"]["generated_tokens"]
    assert {"prompt_tokens", "target_forwards", "tokens_per_forward", "seed"} <= set(data["stats"])


def test_log_probabilities_in_json_and_as_a_table(ask: Any, result: Any) -> None:
    data = result("hello", "--logprobs", "--top-logprobs", "3")
    assert [best[0][0] for best in data["top_logprobs"]] == data["tokens"]
    assert [best[0][1] for best in data["top_logprobs"]] == data["logprobs"]
    assert "logprobs" not in result("hello")
    table = ask("hello", "--logprobs", "--top-logprobs", "3").err
    assert f" {data['tokens'][0]} {data['logprobs'][0]:.3f}" in re.sub(" +", " ", table)


def test_origins_are_colours_on_a_terminal_and_counts_elsewhere(
    ask: Any, result: Any, site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = result("hello", "--no-plugins")
    site.add("zz", proposing(plain["tokens"]))
    monkeypatch.setenv("MLXFILL_GATE__ENABLED", "false")
    piped = ask("hello", "--plugins", "zz", "--origins")
    assert piped.out == f"{plain['text']}\n"
    counts = re.search(r"origins: sampled (\d+)  zz (\d+)", piped.err)
    assert counts is not None
    assert sum(map(int, counts.groups())) == len(plain["tokens"])
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = ask("hello", "--plugins", "zz", "--origins").out
    assert ANSI.search(coloured)
    assert ANSI.sub("", coloured) == piped.out
    assert ask("hello", "--plugins", "zz").out == piped.out


def test_offers_that_the_gate_left_out_are_told(
    ask: Any, site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add("zz", plugin("return mlxfill.Proposal((1, 1, 1), mlxfill.Policy.VERIFY, 'zz')"))
    # Long enough for the gate to see that all are wrong, whatever a window costs here.
    told = ask("tell me", "--plugins", "zz", "-m", "80").err
    counts = re.search(r"the gate left out (\d+) of (\d+) offers, .* mlxfill doctor", told)
    assert counts is not None, told
    left_out, offers = map(int, counts.groups())
    assert 0 < left_out <= offers <= 80
    assert "the gate" not in ask("hello", "--no-plugins").err
    monkeypatch.setenv("MLXFILL_GATE__ENABLED", "false")
    assert "the gate" not in ask("hello", "--plugins", "zz").err


def test_faults_of_plugins_are_told_and_the_text_stays(ask: Any, site: FakeSite) -> None:
    site.add("zz", plugin("raise RuntimeError('broken inside')"))
    outcome = ask("hello", "--plugins", "zz")
    assert outcome.code == 0
    assert outcome.out == ask("hello", "--no-plugins").out
    assert "fault: zz (propose): RuntimeError: broken inside (" in outcome.err


def test_a_plugin_that_was_skipped_is_told(run: Any, site: FakeSite, model: str) -> None:
    site.add("zz", "raise ImportError('no such thing')")
    arguments = ("generate", "--model", model, "--max-tokens", "2", "hello")
    told = run(*arguments).err
    assert re.search(r"^fault: zz \(start\): .*mlxfill-zz 1.0.*no such thing", told, re.MULTILINE)
    faults = json.loads(run(*arguments, "--json").out)["faults"]
    assert [fault["where"] for fault in faults if fault["plugin"] == "zz"] == ["start"]


# --- what is asked ---------------------------------------------------------------


def test_a_prompt_comes_as_argument_or_through_a_pipe(ask: Any) -> None:
    expected = ask("hello there").out
    assert ask(stdin="hello there\n").out == expected
    assert ask("-", stdin="hello there").out == expected


@pytest.mark.parametrize("option", ["--prompt", "-p"])
def test_a_prompt_may_stand_behind_an_option_as_in_mlx_lm(
    run: Any, model: str, option: str
) -> None:
    brief = ("--model", model, "--no-plugins", "--max-tokens", "4", "--quiet")
    expected = run("generate", *brief, "some text")
    assert expected.code == 0
    assert run("generate", *brief, option, "some text") == expected
    assert run("generate", *brief, option, "-", stdin="some text\n") == expected
    assert run("generate", *brief, option, "-", "--raw", stdin="ab") == run(
        "generate", *brief, "--raw", "ab"
    )
    both = run("generate", *brief, option, "one", "two")
    assert both.complaint == "give the prompt as an argument or with --prompt, not both"
    batch = run("generate", "--model", model, "--batch", "x", "--out", "y", option, "one")
    assert batch.complaint.endswith("leave out the prompt")
    empty = run("generate", *brief, option, "")
    assert "is empty" in empty.complaint


def test_raw_continues_the_prompt_as_it_is(result: Any) -> None:
    raw = result("abc", "--raw")
    assert raw["stats"]["prompt_tokens"] == 3
    assert result("--raw", stdin="abc\n")["stats"]["prompt_tokens"] == 4
    assert result("abc")["stats"]["prompt_tokens"] == 6


def test_messages_come_from_a_file_and_the_prompt_after_them(result: Any) -> None:
    turns = [{"role": "user", "content": "abc"}, {"role": "assistant", "content": "de"}]
    asked = [*turns, {"role": "user", "content": "fg"}]
    whole = result("--messages", file("whole.json", asked))
    apart = result("--messages", file("turns.json", {"messages": turns}), "fg")
    assert apart["tokens"] == whole["tokens"]
    assert apart["stats"]["prompt_tokens"] == whole["stats"]["prompt_tokens"] == 14
    assert result("--messages", "-", stdin=json.dumps(asked))["tokens"] == whole["tokens"]


def test_a_system_message_stands_in_front(result: Any) -> None:
    turns = [{"role": "system", "content": "be"}, {"role": "user", "content": "abc"}]
    whole = result("--messages", file("whole.json", turns))
    for option in ("--system", "--system-prompt"):
        assert result("abc", option, "be")["tokens"] == whole["tokens"]


def test_forms_of_openai_reach_the_template_as_plain_ones(result: Any) -> None:
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    call = {"function": {"name": "go", "arguments": '{"to": "x"}'}}
    turns = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "", "tool_calls": [call, {"function": {"name": "go"}}]},
    ]
    plain = [{"role": "user", "content": "abc"}, {"role": "assistant", "content": ""}]
    read = result("--messages", file("parts.json", turns))
    assert read["tokens"] == result("--messages", file("plain.json", plain))["tokens"]


def test_tools_are_read_from_a_list_or_an_object(ask: Any) -> None:
    tool = {"type": "function", "function": {"name": "go", "parameters": {}}}
    for content in ([tool], {"tools": [tool]}, []):
        assert ask("abc", "--tools", file("tools.json", content)).code == 0


# --- options ---------------------------------------------------------------------


def test_options_under_the_names_of_mlx_lm_and_of_the_api_are_the_same(result: Any) -> None:
    given = ["--seed", "7", "--top-k", "20", "--top-p", "0.9", "--min-p", "0.01"]
    first = result("hello", "--temp", "0.9", *given)
    assert first["stats"]["seed"] == 7
    assert result("hello", "--temperature", "0.9", *given)["tokens"] == first["tokens"]
    assert result("hello")["tokens"] != first["tokens"]


def test_penalties_and_xtc_change_what_is_written(result: Any) -> None:
    plain = result("hello")["tokens"]
    assert result("hello", "--repetition-penalty", "3")["tokens"] != plain
    assert result("hello", "--frequency-penalty", "50")["tokens"] != plain
    drawn = ["--temp", "1", "--seed", "1"]
    without = result("hello", *drawn)["tokens"]
    xtc = ["--xtc-probability", "1", "--xtc-threshold", "0.01"]
    assert result("hello", *drawn, *xtc)["tokens"] != without


def test_a_reply_ends_before_a_stop_text(result: Any) -> None:
    text = result("hello")["text"]
    stopped = result("hello", "--stop", text[4:6], "--stop", "never written")
    assert stopped["text"] == text[: text.index(text[4:6])]
    assert stopped["finish_reason"] == "stop"


def test_max_tokens_is_exact(result: Any) -> None:
    for count in (0, 1, 5):
        data = result("hello", "-m", str(count))
        assert (len(data["tokens"]), data["finish_reason"]) == (count, "length")


def test_options_of_the_cache_leave_the_first_token(result: Any) -> None:
    first = result("hello")["tokens"][0]
    for options in (
        ["--kv-bits", "8", "--kv-group-size", "32", "--quantized-kv-start", "9"],
        ["--max-kv-size", "8"],
        ["--prefill-step-size", "2"],
    ):
        assert result("hello", *options)["tokens"][0] == first


def test_defaults_come_from_the_config(run: Any, model: str) -> None:
    file("mlxfill.toml", f"model = {model!r}\n[generation]\nmax_tokens = 3\nseed = 5\n")
    data = json.loads(run("generate", "hello", "--json").out)
    assert (len(data["tokens"]), data["stats"]["seed"]) == (3, 5)
    data = json.loads(run("generate", "hello", "--json", "-m", "4", "--seed", "6").out)
    assert (len(data["tokens"]), data["stats"]["seed"]) == (4, 6)


def test_options_of_the_template_reach_it(ask: Any) -> None:
    expected = ask("hello").out
    config = '{"enable_thinking": false}'
    assert ask("hello", "--chat-template-config", config).out == expected
    closed = ask("hello", "--chat-template-config", '{"add_generation_prompt": false}').out
    assert closed != expected


@pytest.mark.parametrize(("options", "shown"), [([], False), (["--temp", "1"], True)])
def test_a_seed_is_shown_where_something_is_drawn(
    ask: Any, options: list[str], *, shown: bool
) -> None:
    assert ("seed 7" in ask("abc", "--seed", "7", *options).err) is shown


def test_no_tokens_make_no_table(ask: Any) -> None:
    outcome = ask("abc", "--max-tokens", "0")
    assert (outcome.code, outcome.out.strip()) == (0, "")
    assert outcome.err.splitlines() == ["stopped at max_tokens 0: -m N allows more"]


# --- wrong use: one line, exit code 2 --------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([""], "the prompt is empty"),
        (["-"], "the prompt is empty"),
        (["a", "b"], "unexpected extra argument(s) (b): put quotes around a prompt of several"),
        (["a", "--max-tokens", "-2"], "--max-tokens must be a whole number of at least -1, not -2"),
        (["a", "--temp", "-1"], "--temp must be 0 to 1000000, not -1.0"),
        (["a", "--top-p", "1.5"], "--top-p must be 0 to 1, not 1.5"),
        (["a", "--top-p", "nan"], "--top-p must be 0 to 1, not nan"),
        (["a", "--min-p", "-0.1"], "--min-p must be 0 to 1, not -0.1"),
        (["a", "--top-k", "-1"], "--top-k must be a whole number of at least 0, not -1"),
        (["a", "--top-k", "64"], "--top-k must be below the vocabulary size 64, not 64"),
        (["a", "--seed", "-1"], "--seed must be a whole number from 0 to 2**63 - 1, not -1"),
        (["a", "--xtc-threshold", "2"], "--xtc-threshold must be 0 to 0.5, not 2.0"),
        (["a", "--repetition-penalty", "-1"], "--repetition-penalty must be at least 0, not -1.0"),
        (["a", "--stop", ""], "--stop is empty: give it a value, or leave it out"),
        (["a", "--model", ""], "--model is empty: give it a value, or leave it out"),
        (["a", "--draft-model="], "--draft-model is empty"),
        (["--plugins", "", "a"], "--plugins is empty"),
        (["a", "--adapter", "", "--raw"], "--adapter is empty"),
        (["a", "--checkpoint", ""], "--checkpoint is empty"),
        (["a", "-m", ""], "-m is empty"),
        (["a", "--config", ""], "--config is empty"),
        (["a", "--config="], "--config is empty"),
        (["a", "--kv-bits", "5"], "--kv-bits must be 2, 3, 4, 6 or 8, not 5"),
        (["a", "--max-kv-size", "0"], "--max-kv-size must be a whole number of at least 1, not 0"),
        (["a", "--top-logprobs", "-1"], "--top-logprobs must be a whole number of at least 0"),
        (["a", "--num-draft-tokens", "-1"], "--num-draft-tokens must be 0 or more, not -1"),
        (["a", "--top-k", "x"], "--top-k"),
        (["a", "--frobnicate"], "--frobnicate"),
        (["a", "--chat-template-config", "{"], "--chat-template-config must be a JSON object"),
        (["a", "--messages", "none.json"], "--messages none.json: No such file"),
        (["a", "--messages", "."], "--messages .: Is a directory"),
        (["a", "--tools", "none.json"], "--tools none.json: No such file"),
        (["a", "--raw", "--system", "be"], "--raw takes a plain prompt: leave out --system"),
        (["a", "--no-plugins", "--plugins", "x"], "give either --plugins x or --no-plugins"),
        (["a", "--plugins", "zz-none"], "plugin 'zz-none' is not installed; "),
        (["a", "--draft-kind", "zz-none"], "no plugin that is on has the draft kind 'zz-none'"),
        (["a", "-m-2"], "-m must be a whole number of at least -1, not -2"),
        (["a", "--max-tokens=-2"], "--max-tokens must be a whole number of at least -1, not -2"),
        (["a", "--temperature", "-1"], "--temperature must be 0 to 1000000, not -1.0"),
        (["a", "--config", "none.toml"], "config file 'none.toml' does not exist"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    ask: Any, options: list[str], complaint: str
) -> None:
    named = {"--plugins", "--no-plugins"} & set(options)
    outcome = ask(*options, *([] if named else ["--no-plugins"]))
    assert outcome.code == 2
    assert outcome.out == ""
    assert complaint in outcome.complaint


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[", "is not JSON: "),
        ("[" * 100_000, "is not JSON: "),
        ("[]", "must hold a list of messages"),
        ('{"role": "user"}', "must hold a list of messages"),
        ('[{"content": "x"}]', "message 0 has no role: {'content': 'x'}"),
        ('[{"role": "user", "content": 5}]', "message 0: content must be a string or text parts"),
        ('[{"role": "user", "content": [{"type": "file"}]}]', "part 0 is of the type 'file'"),
        ("[3]", "message 0 must be a mapping with role and content, not 3"),
    ],
)
def test_files_of_another_form_are_named(ask: Any, content: str, complaint: str) -> None:
    outcome = ask("--messages", file("turns.json", content))
    assert outcome.code == 2
    assert outcome.complaint.startswith("--messages turns.json: ")
    assert complaint in outcome.complaint


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[", "is not JSON"),
        ("[1]", "tool 0 must be a mapping like"),
        ('{"name": "go"}', "must hold a list of tools"),
        ('"go"', "must hold a list of tools"),
        ('[{"name": "go"}]', "tool 0 has no function: it must be like"),
    ],
)
def test_tools_of_another_form_are_named(ask: Any, content: str, complaint: str) -> None:
    outcome = ask("a", "--tools", file("tools.json", content))
    assert outcome.code == 2
    assert outcome.complaint.startswith(f"--tools tools.json: {complaint}")


def test_two_system_messages_are_one_too_many(ask: Any) -> None:
    turns = file("turns.json", [{"role": "system", "content": "be"}])
    outcome = ask("--messages", turns, "--system", "be", "a")
    assert outcome.code == 2
    assert outcome.complaint == "give --system or a system message in turns.json, not both"


def test_bytes_that_are_no_text_are_refused(ask: Any) -> None:
    outcome = ask(stdin=b"ab\xff")
    assert (outcome.code, outcome.complaint) == (2, "standard input is not UTF-8 (at byte 2)")
    for arguments in (["ab\udcff"], ["--system", "ab\udcff", "hello"]):
        outcome = ask(*arguments)
        assert outcome.code == 2
        assert "the prompt is not UTF-8 (at character " in outcome.complaint


def test_a_prompt_beyond_the_context_is_refused(ask: Any) -> None:
    outcome = ask("a" * 5000)
    assert outcome.code == 2
    assert outcome.complaint.endswith("tokens; the model's context is 4096")


def test_no_model_at_all_is_one_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxfill.plugins.scan", lambda: Catalogue({}, {}, {}, {}, []))
    outcome = run("generate", "hello", "--no-plugins")
    assert outcome.code == 2
    assert outcome.complaint.startswith("no model is named: give --model")


# --- models that cannot be used: one line, exit code 1 ----------------------------


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nonsense", "no model folder 'nonsense'; a model on the hub is OWNER/NAME"),
        ("tiyn", "no model folder 'tiyn'; did you mean 'tiny'?"),
        ("./nonsense", "no model folder './nonsense'; a model on the hub is OWNER/NAME"),
        ("cache", "cache has no config.json: it is an empty folder"),
    ],
)
def test_an_unknown_model_is_named(run: Any, name: str, complaint: str) -> None:
    Path("cache").mkdir()
    outcome = run("generate", "--model", name, "--no-plugins", "hello")
    assert (outcome.code, outcome.complaint) == (1, complaint)


@pytest.fixture
def damaged(model: str) -> Path:
    """A copy of the model, to be damaged."""
    return Path(shutil.copytree(model, "damaged"))


def _drop_shard(folder: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _cut_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])


def _drop_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _other_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 32}))


def _no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_drop_shard, "damaged lacks the shard model-00001-of-00002.safetensors"),
        (_cut_weights, "damaged/model.safetensors is no whole safetensors file"),
        (_drop_weights, "damaged has no model*.safetensors"),
        (_other_shape, "mlp"),
        (_no_json, "damaged/config.json cannot be read as JSON"),
    ],
)
def test_a_damaged_model_is_one_line_that_names_the_file_or_tensor(
    run: Any, damaged: Path, damage: Any, complaint: str
) -> None:
    damage(damaged)
    outcome = run("generate", "--model", str(damaged), "--no-plugins", "hello")
    assert outcome.code == 1
    assert outcome.out == ""
    assert complaint in outcome.complaint


def test_a_hostile_template_is_refused(run: Any, damaged: Path) -> None:
    template = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    (damaged / "chat_template.jinja").write_text(template)
    outcome = run("generate", "--model", str(damaged), "--no-plugins", "hello")
    assert outcome.code == 1
    assert outcome.complaint.startswith("the chat template refused the messages: ")


# --- interruptions ---------------------------------------------------------------


INTERRUPT = "__import__('signal').raise_signal(__import__('signal').SIGINT)"


def test_ctrl_c_ends_a_reply_with_what_there_is(ask: Any, site: FakeSite) -> None:
    site.add("zz", plugin(observe=f"len(ids) and {INTERRUPT}"))
    plain = ask("hello", "--no-plugins").out
    outcome = ask("hello", "--plugins", "zz")
    assert outcome.code == 130
    assert outcome.out.strip()
    assert plain.startswith(outcome.out.removesuffix("\n"))
    assert len(outcome.out) < len(plain)
    assert "tokens/s" in outcome.err
    data = json.loads(ask("hello", "--plugins", "zz", "--json").out)
    assert data["finish_reason"] == "cancelled"


def test_a_prompt_beyond_the_context_is_one_line(
    run: Any, model: str, workplace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = workplace / "short"
    shutil.copytree(model, short)
    settings = json.loads((short / "tokenizer_config.json").read_text())
    (short / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 16}))
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        outcome = run("generate", "--model", str(short), "--no-plugins", "a" * 5000)
    finally:
        logger.removeHandler(caplog.handler)
    assert (outcome.code, caplog.messages) == (2, [])
    assert re.fullmatch(r"the prompt has \d+ tokens; the model's context is \d+", outcome.complaint)


def test_a_reader_that_goes_away_gets_no_traceback(model: str) -> None:
    command = [sys.executable, "-m", "mlxfill", "generate", "--model", model, "--no-plugins"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*command, "hello"], stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr.decode()) == (1, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "command", [["generate", "hello", "-q", "--no-plugins"], ["config", "show"]]
)
def test_an_output_that_takes_no_more_is_one_line(
    model: str, workplace: Path, command: list[str], unbuffered: str
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (workplace / "out").open("w") as full:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            done = subprocess.run(
                [sys.executable, "-m", "mlxfill", *command],
                stdout=full,
                stderr=subprocess.PIPE,
                env={**os.environ, "MLXFILL_MODEL": model, "PYTHONUNBUFFERED": unbuffered},
                check=False,
            )
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said = b"error: cannot write to standard output: File too large\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize(
    ("option", "text", "complaint"),
    [
        ("--schema", "{bad", "--schema shape.json: is not JSON: Expecting property name"),
        ("--schema", "[]", "--schema shape.json: must be a JSON object"),
        ("--grammar", b"\xff", "--grammar shape.json is not UTF-8 (at byte 0)"),
    ],
)
def test_a_wrong_shape_is_told_with_its_file(
    run: Any, option: str, text: str | bytes, complaint: str
) -> None:
    Path("shape.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    outcome = run("generate", "hi", option, "shape.json")
    assert (outcome.code, outcome.complaint[: len(complaint)]) == (2, complaint)
    outcome = run("generate", "hi", "--schema", "{bad")
    assert outcome.complaint.startswith("--schema is not JSON: ")
