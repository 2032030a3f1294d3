"""``mlxfill generate --checkpoint`` and ``mlxfill resume``: a reply that outlives its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from full_disk import full_after
from mlxfill import Checkpoint, load

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLED = ("--temp", "0.8", "--seed", "4", "-m", "60")


@pytest.fixture
def saved(model: str, workplace: Path) -> Path:
    """A reply that was interrupted after some tokens."""
    left: list[Checkpoint] = []
    with load(model, plugins=[]) as engine:
        messages = [{"role": "user", "content": "the thing"}]
        engine.generate(
            messages,
            temperature=0.8,
            seed=4,
            max_tokens=60,
            on_checkpoint=left.append,
            checkpoint_every=20,
        )
    file = workplace / "reply"
    left[0].save(file)
    return file


def test_the_whole_reply_is_printed_as_if_nothing_had_happened(
    run: Callable[..., Any], model: str, saved: Path
) -> None:
    whole = run("generate", "the thing", "--model", model, "--no-plugins", *SAMPLED)
    resumed = run("resume", str(saved))
    assert resumed.code == 0
    assert resumed.out == whole.out
    assert "seed 4" in resumed.err
    assert Checkpoint.load(saved).finished
    again = run("resume", str(saved), "--quiet")
    assert (again.code, again.out, again.err) == (0, whole.out, "")


def test_on_a_terminal_no_bar_stands_in_the_text(
    run: Callable[..., Any], saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = saved.with_name("copy")
    copy.write_bytes(saved.read_bytes())
    piped = run("resume", str(copy))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = run("resume", str(saved))
    assert shown.out == piped.out
    assert "reading" not in shown.err


def test_json(run: Callable[..., Any], model: str, saved: Path) -> None:
    whole = json.loads(
        run("generate", "the thing", "--model", model, "--no-plugins", *SAMPLED, "--json").out
    )
    resumed = json.loads(run("resume", str(saved), "--json").out)
    for key in ("text", "tokens", "origins", "finish_reason", "tool_calls", "faults"):
        assert resumed[key] == whole[key]
    assert resumed["stats"]["seed"] == 4


def test_a_reply_may_become_longer(run: Callable[..., Any], model: str, saved: Path) -> None:
    longer = run(
        "generate", "the thing", "--model", model, "--no-plugins", *SAMPLED[:-1], "80", "-q"
    )
    run("resume", str(saved))
    assert run("resume", str(saved), "-m", "80", "-q").out == longer.out


def test_a_model_that_was_moved(
    run: Callable[..., Any], model: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "here").symlink_to(model)
    code = run(
        *("generate", "the thing", "--model", "here", "--no-plugins", *SAMPLED),
        *("--checkpoint", "reply", "--checkpoint-every", "0"),
    ).code
    assert code == 0
    stored = Checkpoint.load("reply").content["origin"]["model"]
    assert Path(stored).is_absolute()
    (workplace / "elsewhere").mkdir()
    file = Path("reply").absolute()
    monkeypatch.chdir(workplace / "elsewhere")
    assert run("resume", str(file), "-q").code == 0
    assert run("resume", str(file), "-q", "--model", model).code == 0
    assert "no model folder './gone'" in run("resume", str(file), "--model", "./gone").complaint


def test_wrong_use_is_one_line(run: Callable[..., Any], model: str, saved: Path) -> None:
    def complaint(code: int, *arguments: str) -> str:
        done = run(*arguments)
        assert done.code == code
        return str(done.complaint)

    notes = saved.with_name("notes")
    notes.write_text("mine")
    asked = ("generate", "the thing", "--model", model, "--no-plugins")
    assert "no checkpoint gone: No such file" in complaint(1, "resume", "gone")
    assert "no checkpoint of mlxfill" in complaint(1, "resume", str(notes))
    assert "no checkpoint of mlxfill" in complaint(1, *asked, "--checkpoint", str(notes))
    os.mkfifo("pipe")
    for file, cause in (("pipe", "no regular file"), ("/dev/full", "no regular file"), (".", "a")):
        said = f"checkpoint {file} cannot be written: is {cause}"
        assert said in complaint(1, *asked, "--checkpoint", file)
    assert "mlxfill resume" in complaint(1, *asked, "--checkpoint", str(saved))
    assert "needs --checkpoint" in complaint(2, *asked, "--checkpoint-every", "3")
    assert "at least 0" in complaint(2, *asked, "--checkpoint", "new", "--checkpoint-every", "-1")
    assert "at least" in complaint(2, "resume", str(saved), "-m", "3")
    assert notes.read_text() == "mine"


@pytest.mark.parametrize("form", ["-q", "--json", "--origins"])
def test_a_full_disk_is_an_error_after_the_whole_reply(
    run: Callable[..., Any], model: str, saved: Path, form: str
) -> None:
    asked = ("generate", "the thing", "--model", model, "--no-plugins", *SAMPLED, form)
    whole, left = run(*asked), saved.read_bytes()
    with full_after(0):
        new, resumed = run(*asked, "--checkpoint", "new"), run("resume", str(saved), form)
    for done, file in ((new, "new"), (resumed, saved)):
        assert done.code == 1
        said = f"checkpoint {file} cannot be written: File too large"
        assert done.err.splitlines()[-1] == f"error: {said}"
        if form == "--json":
            assert json.loads(done.out)["tokens"] == json.loads(whole.out)["tokens"]
            assert [each["message"] for each in json.loads(done.out)["faults"]] == [said]
        else:
            assert done.out == whole.out
            assert done.err.count(said) == 1
    assert saved.read_bytes() == left
    assert sorted(file.name for file in Path.cwd().iterdir()) == ["reply"]


def test_ctrl_c_saves_the_reply_and_says_how_to_go_on(
    run: Callable[..., Any], model: str, workplace: Path
) -> None:
    arguments = (*("generate", "the thing", "--model", model, "--no-plugins"), *SAMPLED[:-1])
    saving = ("--checkpoint", "reply", "--checkpoint-every", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "mlxfill", *arguments, "4000", *saving],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=workplace,
        env={**os.environ, "MLXFILL_GATE__ENABLED": "true"},
    )
    while not (workplace / "reply").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert "go on with: mlxfill resume reply" in err
    resumed = run("resume", "reply", "-q")
    assert resumed.out.startswith(out.rstrip("\n"))
    assert resumed.out == run(*arguments, "4000", "-q").out
