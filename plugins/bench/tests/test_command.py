"""``mlxfill bench replay`` as it is typed: what it prints and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mlxfill.cli import main
from mlxfill.testing.installed import HEADER, FakeSite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIAR = f"""{HEADER}
class Liar:
    name, window = "liar", 1

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
def bench(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """``bench("--arms", "spec-ngram")``: exit code, standard output, standard error."""
    monkeypatch.setenv("MLXFILL_GATE__ENABLED", "false")
    monkeypatch.setenv("COLUMNS", "120")

    def bench(*arguments: str) -> tuple[int, str, str]:
        code = main(["bench", "replay", *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return bench


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
    ],
)
def test_wrong_use_gets_one_line(bench: Any, arguments: list[str], said: str) -> None:
    assert said in complaint(bench(*arguments))


def test_the_help_page_lists_the_command_without_importing_it() -> None:
    script = """
import sys
from mlxfill.cli import main

main(["--help"])
print({"mlxfill_bench", "mlx"} & set(sys.modules))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert any(line.split()[:1] == ["bench"] for line in lines)
    assert lines[-1] == "set()"
