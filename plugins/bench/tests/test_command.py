"""``mlxfill bench``, ``bench replay`` and ``tune`` as they are typed: what they say and do."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mlxfill.cli import main
from mlxfill_bench import effect, figures
from mlxfill_testing.installed import HEADER, FakeSite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIAR = f"""{HEADER}
class Liar:
    def __init__(self, request):
        self.at, self.lie = len(request.prompt_ids) + 12, request.prompt_ids[5:7]

    def propose(self, view):
        if view.length == self.at:
            return mlxfill.Proposal(self.lie, mlxfill.Policy.ASSERT, "lie")

    def observe(self, ids): pass

    def resolved(self, proposal, accepted): pass

@mlxfill.hookimpl
def mlxfill_proposal_sources(request):
    return [Liar(request)]
"""
QUICK = ("--limit", "2", "--rounds", "1")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSite]:
    """A place for a plugin that lies."""
    site = FakeSite(tmp_path / "site")
    monkeypatch.syspath_prepend(site.folder)
    site.add("liar", LIAR)
    yield site
    site.forget()


@pytest.fixture
def mlxfill(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """``mlxfill("bench", "--arms", "spec-ngram")``: exit code, standard output and error."""
    monkeypatch.setenv("MLXFILL_GATE__ENABLED", "false")
    monkeypatch.setenv("COLUMNS", "120")

    def mlxfill(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return mlxfill


@pytest.fixture
def bench(mlxfill: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str, str]]:
    """``bench("--arms", "spec-ngram")``: the same of ``mlxfill bench replay``."""
    return partial(mlxfill, "bench", "replay")


def complaint(outcome: tuple[int, str, str]) -> str:
    code, out, err = outcome
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    return line


def test_a_trusted_plugin_that_lies_fails(bench: Any, site: FakeSite) -> None:  # noqa: ARG001
    Path("mlxfill.toml").write_text("[trust]\nassert = ['liar']\n")
    code, out, _ = bench("--arms", "liar", *QUICK)
    assert code == 1
    row = next(line.split() for line in out.splitlines() if line.startswith("liar"))
    assert row[-1] == "worse"
    assert row[6] == "0/9"
    assert "liar: made worse: session edit-1, turn 1: " in out
    assert "more (all in --json)" in out


def test_a_plugin_that_lies_and_is_not_trusted_does_no_harm(
    bench: Any,
    site: FakeSite,  # noqa: ARG001
) -> None:
    code, out, _ = bench("--arms", "liar", "--json", *QUICK)
    (liar,) = json.loads(out)["arms"]
    assert code == 0
    assert (liar["harm"]["identical"], liar["harm"]["worse"]) == (9, 0)
    assert liar["figures"]["injected"] == 0


def test_the_json_holds_everything(bench: Any) -> None:
    code, out, err = bench("--arms", "spec-ngram,fill-echo+spec-ngram", "--json", *QUICK)
    assert (code, err) == (0, "")
    (line,) = out.splitlines()
    report = json.loads(line)
    assert (
        report.items()
        >= {
            "model": "tiny",
            "sessions": "sessions.jsonl",
            "rounds": 1,
            "cold": False,
            "margin": 0.05,
            "seed": 0,
        }.items()
    )
    assert [arm["arm"] for arm in report["arms"]] == ["spec-ngram", "fill-echo+spec-ngram"]
    for arm in report["arms"]:
        harm, speed = arm["harm"], arm["speed"]
        assert harm["turns"] == harm["identical"] == 9
        assert harm["right"] == harm["plain_right"]
        assert speed["low"] <= speed["high"]
        assert list(arm["by_session"]) == ["edit-1", "grep-2"]
        figures = arm["figures"]
        assert figures["tokens_per_forward"] > 1
        assert 0 < figures["acceptance"] < 1
        assert (figures["injected"], arm["changes"], figures["faults"]) == (0, [], [])


def test_the_tables_name_arms_sessions_and_verdicts(bench: Any) -> None:
    code, out, _ = bench("--arms", "spec-ngram", *QUICK, "--margin", "0.9")
    assert code == 0
    assert "harmless when it makes at most 90.0% of these worse" in " ".join(out.split())
    rows = [line.split() for line in out.splitlines() if line.startswith("spec-ngram")]
    assert [len(row) for row in rows] == [8, 8]
    assert rows[0][-1] == "harmless"
    assert rows[1][-1] in {"faster", "slower", "undecided"}
    assert {"edit-1", "grep-2"} <= {line.split()[0] for line in out.splitlines() if line}


def test_a_replay_has_a_page_too(bench: Any) -> None:
    Path("own.jsonl").write_text(
        json.dumps(
            {
                "id": "mine",
                "messages": [
                    {"role": "user", "content": "Hi."},
                    {"role": "assistant", "content": "Hello."},
                    {"role": "user", "content": "Hi again."},
                    {"role": "assistant", "content": "Hello again."},
                ],
            }
        )
    )
    arguments = ("own.jsonl", "--arms", "spec-ngram", "--rounds", "1", "--max-tokens", "8")
    code, _, err = bench(*arguments, "--report", "out.html", "--png", "plots")
    assert code == 0
    assert "out.html is written." in err
    page = Path("out.html").read_text()
    assert "<summary>mine</summary>" in page
    assert "<summary>mine, turn 2</summary>" in page
    assert "Does any of them do harm?" in page
    assert Path("plots/speed.png").exists()


def test_tables_in_a_pipe_are_as_wide_as_they_are(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    Path("own.jsonl").write_text(json.dumps({"id": "mine", "messages": messages}))
    arms = [
        "spec-ngram",
        "fill-echo",
        "fill-strict",
        "fill-echo+spec-ngram",
        "fill-echo+fill-strict",
    ]
    _, out, _ = bench("own.jsonl", "--arms", ",".join(arms), "--max-tokens", "2", "--rounds", "1")
    (row,) = (line for line in out.splitlines() if line.startswith("mine "))
    assert row.count("x") == len(arms)
    assert "\N{HORIZONTAL ELLIPSIS}" not in out


def test_a_narrow_terminal_gets_fewer_columns(
    mlxfill: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "48")
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    Path("own.jsonl").write_text(json.dumps({"id": "mine", "messages": messages}))
    brief = ("--arms", "ngram,echo,strict,echo+ngram", "--rounds", "1", "--max-tokens", "4")
    _, replayed, _ = mlxfill("bench", "replay", "own.jsonl", *brief)
    _, measured, _ = mlxfill("bench", "--limit", "1", *brief)
    for out in (replayed, measured):
        lines = out.splitlines()
        assert "\N{HORIZONTAL ELLIPSIS}" not in out
        assert all(len(line) <= 48 for line in lines if line.startswith(("arm ", "spec-ngram ")))
        assert [line for line in lines if line.startswith("arm ") and "verdict" in line]
    rows = [line.split() for line in replayed.splitlines() if line.startswith("mine ")]
    arms = ["spec-ngram", "fill-echo", "fill-strict", "fill-echo+spec-ngram"]
    assert [row[1] for row in rows] == arms


def test_own_sessions_and_model_are_replayed(bench: Any) -> None:
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    Path("own.jsonl").write_text(json.dumps({"id": "mine", "messages": messages}))
    arguments = ("own.jsonl", "--arms", "spec-ngram", "--json", "--max-tokens", "4", "--cold")
    code, out, _ = bench(*arguments, "--model", "tiny-draft", "--rounds", "2")
    report = json.loads(out)
    assert code == 0
    assert (report["model"], report["sessions"], report["cold"]) == (
        "tiny-draft",
        "own.jsonl",
        True,
    )
    assert list(report["arms"][0]["by_session"]) == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.jsonl"], "none.jsonl: No such file"),
        (["--arms", "zz-none"], "plugin 'zz-none' is not installed"),
        (["--arms", "plain"], "--arms plain: name plugins"),
        (["--rounds", "0"], "--rounds"),
        (["--limit", "0"], "--limit"),
        (["--max-tokens", "0"], "--max-tokens"),
        (["--margin", "1.5"], "--margin"),
        (["--report", "none/out.html"], "there is no folder none"),
    ],
)
def test_wrong_use_gets_one_line(bench: Any, arguments: list[str], said: str) -> None:
    assert said in complaint(bench(*arguments))


# --- the user's own prompts ------------------------------------------------------------

BRIEF = ("--rounds", "1", "--limit", "1", "--max-tokens", "30")


def test_own_prompts_are_measured_and_told_of(mlxfill: Any) -> None:
    Path("p.jsonl").write_text('{"id": "mine", "prompt": "Say hi, say hi, say hi."}\n"Again."\n')
    files = ("--json", "out.json", "--report", "out.html", "--png", "plots")
    code, out, _ = mlxfill(
        "bench", "--model", "tiny", "--prompts", "p.jsonl", "--arms", "plain,ngram", *BRIEF, *files
    )
    assert code == 0
    assert "Model tiny, 1 prompt, 1 round, greedy, at most 30 tokens." in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("spec-ngram")]
    assert row[-2:] == ["1/1", "undecided"]
    assert "No arm surely helps for these prompts." in out
    told = json.loads(Path("out.json").read_text())
    assert told["advice"]["arm"] is None
    assert [list(arm["by_prompt"]) for arm in told["arms"]] == [["mine"]]
    assert "mine</summary>" in Path("out.html").read_text()
    assert Path("plots/speed.png").exists()


def test_samples_are_measured_where_no_prompts_are_given(mlxfill: Any) -> None:
    code, out, err = mlxfill("bench", "--arms", "echo,strict+echo", "--json", "-", *BRIEF)
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert [arm["arm"] for arm in told["arms"]] == ["fill-echo", "fill-strict+fill-echo"]
    assert told["arms"][1]["figures"]["injected"] > 0
    assert list(told["arms"][0]["by_prompt"]) == ["call-a-tool"]


def test_drawn_texts_are_the_same_too(mlxfill: Any) -> None:
    drawn = ("--temp", "0.8", "--seed", "3", "--cold")
    _, out, _ = mlxfill("bench", "--arms", "ngram,draft=tiny-draft", "--json", "-", *BRIEF, *drawn)
    told = json.loads(out)
    assert (told["temperature"], told["seed"], told["cold"]) == (0.8, 3, True)
    assert [arm["identical"] for arm in told["arms"]] == [1, 1]


def test_raw_texts_are_continued(mlxfill: Any) -> None:
    Path("p.txt").write_text("def f(x):\n")
    _, out, _ = mlxfill(
        "bench", "--prompts", "p.txt", "--raw", "--arms", "ngram", "--json", "-", *BRIEF
    )
    assert json.loads(out)["prompts"] == 1


def test_an_arm_that_changes_the_text_is_told_of(mlxfill: Any, site: FakeSite) -> None:  # noqa: ARG001
    Path("mlxfill.toml").write_text("[trust]\nassert = ['liar']\n")
    code, out, _ = mlxfill("bench", "--arms", "liar", *BRIEF)
    assert code == 0
    assert "liar: other tokens than plain decoding: call-a-tool (asserted tokens may" in out


def test_an_arm_that_fails_ends_with_an_exit_code(mlxfill: Any, site: FakeSite) -> None:
    site.add("broken", LIAR.replace("view.length == self.at", "1 // 0"))
    code, out, _ = mlxfill("bench", "--arms", "broken", *BRIEF)
    assert code == 1
    assert "faulty" in out
    assert "broken: fault: broken (propose): ZeroDivisionError" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prompts", "none.txt"], "none.txt: No such file"),
        (["--arms", "zz-none"], "plugin 'zz-none' is not installed"),
        (["--arms", "draft=zz-none", "--limit", "1"], "zz-none"),
        (["--report", "none/out.html"], "--report none/out.html: there is no folder none"),
        (["--report", "."], "--report .: is a folder"),
        (["--report", "-"], "--report -: standard output is taken"),
        (["--json", "none/x.json"], "--json none/x.json: there is no folder none"),
        (["--png", "-"], "--png -: standard output is taken"),
        (["--png", "file/plots"], "--png file/plots: "),
        # Writable for nobody, root included.
        (["--report", "/proc/x.html"], "--report /proc/x.html: "),
        (["--json", "/proc/x.json"], "--json /proc/x.json: "),
        (["--png", "/proc/plots"], "--png /proc/plots: "),
        (["--rounds", "0"], "--rounds"),
        (["--temp", "-1"], "--temp"),
        (["--model", "none", "--arms", "ngrm"], "plugin 'ngrm' is not installed; did you mean "),
        (["--slack", "2"], "--slack"),
        (["--rounds", "3", "replay"], "--rounds stands before replay: put it behind"),
    ],
)
def test_wrong_use_of_bench_gets_one_line(mlxfill: Any, arguments: list[str], said: str) -> None:
    Path("file").touch()
    code, out, err = mlxfill("bench", *arguments)
    assert (code in {1, 2}, out, len(err.splitlines())) == (True, "", 1)
    assert said in err


# --- tune ------------------------------------------------------------------------------


@pytest.fixture
def helping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements of a quiet machine in which plain decoding takes ten times as long as it did."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    pairs = figures._pairs
    monkeypatch.setattr(
        figures, "_pairs", lambda *a: [(10 * plain, arm) for plain, arm in pairs(*a)] * 3
    )
    monkeypatch.setattr(effect, "FEWEST_PAIRS", 1)


OLD = """\
# Ours.
model = "tiny"  # small

[plugins]
enabled = ["model-tiny", "fill-echo"]  # for now
"""
TUNE = ("tune", "--arms", "ngram", *BRIEF)


def test_tune_writes_what_helps(mlxfill: Any, helping: None) -> None:  # noqa: ARG001
    Path("mlxfill.toml").write_text(OLD)
    code, out, _ = mlxfill(*TUNE, "--yes")
    assert code == 0
    assert "spec-ngram helps most: x" in out
    assert '+enabled = ["spec-ngram", "model-tiny", "fill-echo"]  # for now' in out
    assert out.splitlines()[-1] == "mlxfill.toml is written."
    assert Path("mlxfill.toml").read_text() == OLD.replace('["model', '["spec-ngram", "model')


@pytest.mark.parametrize("option", [[], ["--dry-run"], ["--dry-run", "--yes"]])
def test_tune_shows_the_change_and_writes_nothing_unasked(
    mlxfill: Any,
    helping: None,  # noqa: ARG001
    option: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("mlxfill.toml").write_text(OLD)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, out, err = mlxfill(*TUNE, *option)
    assert code == 0
    assert "+enabled = " in out
    assert ("Nothing is written: give --yes." in err) == (option == [])
    assert Path("mlxfill.toml").read_text() == OLD


@pytest.mark.parametrize("option", [[], ["--yes"]])
def test_tune_writes_nothing_from_times_that_other_programs_disturbed(
    mlxfill: Any,
    helping: None,  # noqa: ARG001
    option: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("mlxfill.toml").write_text(OLD)
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    code, out, err = mlxfill(*TUNE, *option)
    assert code == 0
    assert '+enabled = ["spec-ngram", "model-tiny", "fill-echo"]' in out
    said = "Nothing is written: tune on a quiet machine, or write the lines with + yourself."
    assert err.splitlines()[-1] == said
    assert Path("mlxfill.toml").read_text() == OLD


@pytest.mark.parametrize(
    ("variable", "value", "key"),
    [
        ("MLXFILL_PLUGINS__ENABLED", "fill-echo", "plugins.enabled"),
        ("MLXFILL_PLUGINS", "fill-echo", "plugins.enabled"),
        ("MLXFILL_DRAFT", "tiny-draft", "draft"),
    ],
)
@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_what_overrides_the_keys_is_told_before_anything_is_measured(  # noqa: PLR0913, PLR0917
    mlxfill: Any,
    option: str,
    variable: str,
    value: str,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("mlxfill.toml").write_text(OLD)
    monkeypatch.setenv(variable, value)
    line = complaint(mlxfill("tune", "--model", "none", option))
    assert line == f"error: ${variable} overrides {key}: unset it before you tune"


def test_a_config_that_cannot_be_written_is_told_before_anything_is_measured(
    mlxfill: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/proc")
    line = complaint(mlxfill("tune", "--model", "none", "--yes"))
    assert line.startswith("error: the folder of the config /proc: ")


def test_what_a_variable_sets_is_told_beside_the_figures(mlxfill: Any) -> None:
    said = "measured with gate.enabled of $MLXFILL_GATE__ENABLED: "
    for command in ([*TUNE, "--dry-run"], ["bench", "--arms", "ngram", *BRIEF]):
        assert said in mlxfill(*command)[2]


def test_tune_leaves_alone_what_is_right(mlxfill: Any) -> None:
    Path("mlxfill.toml").write_text(OLD)
    code, out, _ = mlxfill(*TUNE, "--yes")
    assert code == 0
    assert "No change: what is on stays on." in out
    assert Path("mlxfill.toml").read_text() == OLD


def test_tune_measures_installed_plugins_that_are_off(mlxfill: Any) -> None:
    Path("mlxfill.toml").write_text(OLD)
    _, out, _ = mlxfill("tune", *BRIEF, "--dry-run")
    arms = {line.split()[0] for line in out.splitlines() if line[:5] in {"fill-", "spec-"}}
    assert {"fill-echo", "fill-strict", "spec-ngram"} <= arms


@pytest.mark.parametrize(
    ("command", "unasked"),
    [
        (["bench"], "every plugin that is on and proposes tokens"),
        (["bench", "replay"], "every plugin that is on and proposes tokens"),
        (["tune"], "every installed plugin that proposes tokens"),
    ],
)
def test_help_says_once_what_is_measured_unasked(
    mlxfill: Any, command: list[str], unasked: str
) -> None:
    page = " ".join(mlxfill(*command, "--help")[1].split())
    assert f"Without --arms {unasked} is " in page
    assert page.count("that is on") == unasked.count("that is on")


def test_the_help_page_lists_the_commands_without_importing_it() -> None:
    script = """
import sys
from mlxfill.cli import main

main(["--help"])
print({"mlxfill_bench", "mlx"} & set(sys.modules))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert {"bench", "tune"} <= {line.split()[0] for line in lines if line.strip()}
    assert lines[-1] == "set()"
