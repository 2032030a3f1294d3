"""``mlxfill audit``: what it prints, and what it says in the end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mlxfill
from mlxfill_testing.installed import HEADER

if TYPE_CHECKING:
    from mlxfill_testing.installed import FakeSite

SOURCE = """
class Source:
    def __init__(self, request):
        self.begun = len(request.prompt_ids)

    def observe(self, ids):
        pass

    def propose(self, view):
        rest = {known}[view.length - self.begun:]
        return mlxfill.Proposal(tuple(rest), mlxfill.Policy.{policy}, "{origin}") if rest else None

    def resolved(self, proposal, accepted):
        pass

@mlxfill.hookimpl
def mlxfill_proposal_sources(request):
    return [Source(request)]
"""
ASK = "hello"
CONFIG = '[gate]\nenabled = false\n[trust]\nassert = ["zz"]\n'


@pytest.fixture
def reply(model: str) -> list[int]:
    """What plain decoding answers."""
    with mlxfill.load(model, plugins=[]) as engine:
        return engine.generate([{"role": "user", "content": ASK}], max_tokens=12).tokens


@pytest.fixture
def audit(run: Any, model: str, site: FakeSite) -> Any:
    """Audit a run with a plugin that claims to know the reply."""

    def audit(known: list[int], *arguments: str, policy: str = "VERIFY", origin: str = "zz") -> Any:
        site.add("zz", HEADER + SOURCE.format(known=known, policy=policy, origin=origin))
        Path("mlxfill.toml").write_text(CONFIG)
        return run(
            "audit", ASK, "--model", model, "--plugins", "zz", "--max-tokens", "12", *arguments
        )

    return audit


def test_a_row_for_each_proposed_token_and_a_verdict(audit: Any, reply: list[int]) -> None:
    outcome = audit(reply)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    rows = [line.split() for line in lines if " verify " in line]
    assert len(rows) == len(reply) - 1  # the first one is never proposed
    assert all(row[1:3] == ["zz", "verify"] and row[-1] == "yes" for row in rows)
    count = len(rows)
    assert lines[-4:] == [
        f"zz (verify): {count} of {count} proposed tokens agree",
        "noise of this precision: 0",
        "caches: answer as those of plain decoding (difference 0)",
        "identical to plain decoding: yes",
    ]


def test_a_narrow_terminal_gets_fewer_columns(
    audit: Any, reply: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = audit(reply).out
    (head,) = [line for line in out.splitlines() if "agree" in line and "token " in line]
    assert head.split() == ["token", "proposed", "model's", "own", "agree"]
    assert "\N{HORIZONTAL ELLIPSIS}" not in out


def test_a_pipe_gets_every_column_whole(
    audit: Any, reply: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    origin = "from_a_plugin_that_has_a_long_name_for_everything"
    out = audit(reply, origin=origin).out
    (head,) = [line for line in out.splitlines() if "agree" in line and "token " in line]
    assert head.split()[-3:] == ["margin", "behind", "agree"]
    assert f" {origin} " in out


def test_a_refused_proposal_is_shown_and_changes_nothing(audit: Any, reply: list[int]) -> None:
    wrong = [*reply[:3], (reply[3] + 1) % 64, *reply[4:]]
    outcome = audit(wrong)
    (row,) = [line for line in outcome.out.splitlines() if line.rstrip().endswith(" no")]
    assert row.split()[0] == "3"
    assert outcome.out.endswith("identical to plain decoding: yes\n")


def test_a_lie_that_was_asserted_is_the_last_line(audit: Any, reply: list[int]) -> None:
    wrong = [*reply[:3], (reply[3] + 1) % 64, *reply[4:]]
    outcome = audit(wrong, policy="ASSERT")
    assert outcome.code == 0
    last = outcome.out.splitlines()[-1]
    assert last.startswith("identical to plain decoding: no, token 3 is ")
    assert last.endswith(": more than the noise")
    assert " (zz), " in last


def test_nothing_proposed_is_said(audit: Any) -> None:
    lines = audit([]).out.splitlines()
    assert lines[0] == "nothing was proposed"
    assert lines[-1] == "identical to plain decoding: yes"


def test_json_is_one_line_with_everything(audit: Any, reply: list[int]) -> None:
    outcome = audit(reply, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    data = json.loads(outcome.out)
    assert outcome.out.count("\n") == 1
    assert list(data) == ["identical", "difference", "noise", "caches", "proposed", "result"]
    assert data["identical"] is True
    assert data["result"]["tokens"] == reply


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--top-p", "2"], "--top-p must be 0 to 1, not 2"),
        (["--raw", "--system", "x"], "--raw takes a plain prompt: leave out --system"),
        (["--model", "/nowhere/at/all"], "/nowhere/at/all"),
    ],
)
def test_wrong_use_gets_one_line(
    run: Any, model: str, arguments: list[str], complaint: str
) -> None:
    outcome = run("audit", ASK, "--model", model, "--no-plugins", *arguments)
    assert outcome.code in {1, 2}
    assert complaint in outcome.complaint
    assert outcome.out == ""


def test_a_trace_file_that_cannot_be_written_gets_one_line(
    run: Any, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLXFILL_TRACE", f"{sys.prefix}/no/such/folder/trace.jsonl")
    outcome = run("generate", ASK, "--model", model, "--no-plugins")
    assert outcome.code == 2
    assert outcome.complaint.startswith("MLXFILL_TRACE=")
