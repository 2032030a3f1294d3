"""The file of a checkpoint: whole or refused, one process at a time, alive after kill -9."""

from __future__ import annotations

import gc
import json
import linecache
import os
import random
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfill
from full_disk import full_after
from mlxfill import Checkpoint, CheckpointError
from mlxfill_testing import engine_with, plain, shared_model, tiny_folder
from patience import AT_ALL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from mlxfill import Run

PROMPT = [7, 30, 9, 30, 11, 4]
OPTIONS: dict[str, Any] = {"max_tokens": 30, "eos_token_ids": ()}
KILLS = int(os.environ.get("MLXFILL_KILLS", "20"))
"""How many processes are killed; 100 take two minutes."""
NAMES = ["llama", "qwen3_5", "gemma3_text", "falcon_h1"]


@cache
def whole_file() -> bytes:
    """A checkpoint of a tiny hybrid model."""
    left: list[Checkpoint] = []
    with engine_with(shared_model("qwen3_5")) as engine:
        engine.generate(PROMPT, on_checkpoint=left.append, checkpoint_every=10, **OPTIONS)
    path = Path(os.environ["HOME"]) / "whole"
    path.parent.mkdir(parents=True, exist_ok=True)
    left[0].save(path)
    return path.read_bytes()


def complaint(path: Path) -> str:
    """The one line that a bad file gets; it stays as it is."""
    before = path.read_bytes()
    with engine_with(shared_model("qwen3_5")) as engine, pytest.raises(CheckpointError) as caught:
        engine.resume(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    (line,) = str(caught.value).splitlines()
    assert str(path) in line
    return line


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A whole checkpoint."""
    path = tmp_path / "files" / "reply"
    path.parent.mkdir()
    path.write_bytes(whole_file())
    return path


# --- damage -----------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=60)
def test_a_byte_that_changed_is_noticed(data: st.DataObject, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("files") / "reply"
    content = bytearray(whole_file())
    size = int.from_bytes(content[:8], "little")
    # The header is short, the arrays are long: both shall be hit.
    places = st.integers(0, size + 8) | st.integers(size + 8, len(content) - 1)
    at = data.draw(places)
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    assert complaint(path)


@given(st.integers(0, 1 << 30))
@settings(max_examples=30)
def test_an_end_that_is_missing_is_noticed(tmp_path_factory: Any, length: int) -> None:
    path = tmp_path_factory.mktemp("files") / "reply"
    content = whole_file()
    path.write_bytes(content[: length % len(content)])
    assert complaint(path)


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    path = folder / "reply"
    for content in (b"", b"hello", b"{}", os.urandom(4096), json.dumps({"a": 1}).encode() * 99):
        path.write_bytes(content)
        assert "no checkpoint of mlxfill" in complaint(path)
    path.unlink()
    model = tiny_folder(tmp_path / "model") / "model.safetensors"
    model.rename(path)
    assert "no checkpoint of mlxfill" in complaint(path)


def test_a_newer_version_names_the_remedy(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"version":"1"', b'"version":"7"'))
    assert "version 7, this one reads 1): pip install --upgrade mlxfill" in complaint(file)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(CheckpointError, match="no checkpoint nowhere: No such file"):
        Checkpoint.load("nowhere")


def test_nothing_worth_keeping_is_replaced(file: Path) -> None:
    foreign = file.with_name("notes.txt")
    foreign.write_text("mine")
    with engine_with(shared_model("qwen3_5")) as engine:
        with pytest.raises(CheckpointError, match="unfinished generation: resume it"):
            engine.stream(PROMPT, checkpoint=file)
        with pytest.raises(CheckpointError, match="no checkpoint of mlxfill"):
            engine.stream(PROMPT, checkpoint=foreign)
        with pytest.raises(CheckpointError, match="cannot be written"):
            engine.stream(PROMPT, checkpoint=file.parent / "missing" / "reply")
        assert file.read_bytes() == whole_file()
        engine.resume(file).result()
        engine.generate(PROMPT, checkpoint=file, **OPTIONS)  # a finished one may be
    assert foreign.read_text() == "mine"
    assert sorted(entry.name for entry in file.parent.iterdir()) == ["notes.txt", "reply"]


def test_a_file_with_a_longer_name_may_be_written_meanwhile(file: Path) -> None:
    other = file.with_name(f"{file.name}.2")
    with engine_with(shared_model("qwen3_5")) as engine, mlxfill.replacing(other) as written:
        engine.resume(file).result()
        written.write(b"whole")
    assert other.read_bytes() == b"whole"


def test_a_name_that_no_file_can_have_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    said = f"^checkpoint {path} cannot be written: File name too long$"
    with (
        engine_with(shared_model("qwen3_5")) as engine,
        pytest.raises(CheckpointError, match=said),
    ):
        engine.stream(PROMPT, checkpoint=path)


def test_a_disk_that_fails_costs_the_checkpoint_not_the_reply(file: Path) -> None:
    model = shared_model("qwen3_5")
    with engine_with(model) as engine:
        run = engine.resume(file)
        file.unlink()
        file.mkdir()  # nothing can take its place now
        result = run.result()
    assert result.tokens == plain(model, PROMPT, 30).tokens
    assert [fault.where for fault in result.faults] == ["checkpoint"]


def test_a_full_disk_costs_the_newest_checkpoints_not_the_reply(file: Path) -> None:
    model = shared_model("qwen3_5")
    with engine_with(model) as engine:
        run = engine.resume(file, checkpoint_every=4)
        with full_after(len(whole_file()) // 2):
            result = run.result()
        assert result.tokens == plain(model, PROMPT, 30).tokens
        (fault,) = result.faults
        said = f"checkpoint {file} cannot be written: File too large"
        assert (fault.plugin, fault.where, fault.message) == ("engine", "checkpoint", said)
    assert file.read_bytes() == whole_file()


def test_a_checkpoint_for_which_memory_was_short_is_followed_by_the_next(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Any = mx.save_safetensors
    short = [MemoryError()]

    def save(*given: Any) -> None:
        if short:
            raise short.pop()
        real(*given)

    monkeypatch.setattr(mx, "save_safetensors", save)
    with engine_with(shared_model("qwen3_5")) as engine:
        result = engine.resume(file, checkpoint_every=4).result()
        assert (short, result.faults) == ([], [])
        assert Checkpoint.load(file).finished
        short.append(MemoryError())
        (fault,) = engine.generate(PROMPT, checkpoint=file, **OPTIONS).faults
        assert fault.message == f"checkpoint {file} cannot be written: MemoryError"


# --- processes --------------------------------------------------------------------------------


class Killable:
    """The program of ``killable.py``: one process at a time."""

    def __init__(self) -> None:
        program = Path(__file__).with_name("killable.py")
        self._server = subprocess.Popen(
            [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.process = 0

    def start(self, path: Path, model: str, seed: int, pause: float) -> None:
        """Begin the reply that ``path`` stores, or go on with it."""
        line = json.dumps([str(path), model, seed, pause])
        assert self._server.stdin
        print(line, file=self._server.stdin, flush=True)
        self.process = int(self._answer())

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends by itself so soon."""
        assert self._server.stdout
        return bool(select.select([self._server.stdout], [], [], seconds)[0])

    def kill(self) -> int:
        """End it as a crash does; answers how it ended."""
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        return self.ended()

    def ended(self) -> int:
        """Exit code, or minus the signal."""
        return int(self._answer())

    def _answer(self) -> str:
        """A line; nothing is read ahead, so that ``ends_within`` sees what is there."""
        assert self._server.stdout
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(self._server.stdout.fileno(), 1)
            assert byte, "the program has ended"
            line += byte
        return line.decode()

    def close(self) -> None:
        """End the program."""
        with self._server as server:
            server.kill()


@pytest.fixture(scope="module")
def killable() -> Iterator[Killable]:
    """A program whose processes may be killed."""
    program = Killable()
    yield program
    program.close()


def test_a_program_may_end_in_the_middle_of_a_reply(tmp_path: Path) -> None:
    program = """
from mlxfill_testing import engine_with, shared_model
engine = engine_with(shared_model("llama"))
options = {"max_tokens": 99, "eos_token_ids": (), "checkpoint_every": 2}
unread = engine.stream([3, 4], checkpoint="unread", **options)
run = engine.stream([3, 4], checkpoint="reply", **options)
for _ in range(20):
    next(run)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        timeout=AT_ALL,
        check=False,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert [entry.name for entry in tmp_path.iterdir()] == ["reply"]
    assert Checkpoint.load(tmp_path / "reply").generated > 2


def test_a_run_that_nobody_reads_lets_go_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "reply"
    with engine_with(shared_model("llama")) as engine:
        for _ in range(3):
            engine.stream(PROMPT, checkpoint=file)
            gc.collect()
        assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_dropped_half_way_keeps_nobody_from_going_on(tmp_path: Path) -> None:
    file = tmp_path / "reply"
    options: dict[str, Any] = {"max_tokens": 20, "eos_token_ids": ()}
    gc.disable()
    try:
        with engine_with(shared_model("llama")) as engine:
            for _ in engine.stream(PROMPT, checkpoint=file, checkpoint_every=2, **options):
                if file.exists():
                    break
            result = engine.resume(file).result()
    finally:
        gc.enable()
    assert result.tokens == plain(shared_model("llama"), PROMPT, 20).tokens


def test_a_second_process_is_refused(tmp_path: Path, killable: Killable) -> None:
    path = tmp_path / "reply"
    killable.start(path, "llama", 1, AT_ALL)
    while not path.exists() and not killable.ends_within(0.01):
        pass
    with engine_with(shared_model("llama")) as engine:
        for attempt in (
            lambda: engine.resume(path),
            lambda: engine.stream(PROMPT, checkpoint=path),
            lambda: Checkpoint.load(path).save(path),
        ):
            with pytest.raises(CheckpointError, match="in use by another process"):
                attempt()
        assert killable.kill() == -signal.SIGKILL
        expected = plain(shared_model("llama"), PROMPT, 120, temperature=0.8, seed=1)
        assert engine.resume(path).result().tokens == expected.tokens


def test_what_was_killed_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, killable: Killable
) -> None:
    rng = random.Random(5)
    kills = seed = 0
    while kills < KILLS:
        seed += 1
        name, path = NAMES[seed % len(NAMES)], tmp_path / f"reply {seed}"
        killed = reached = tries = 0
        longest = 0.6
        while True:
            tries += 1
            assert tries < 200, f"{reached} tokens after {tries} processes: they do not get far"
            killable.start(path, name, seed, 0.001)
            if killable.ends_within(rng.uniform(0.1, longest)):
                assert killable.ended() == 0
                break
            killed += killable.kill() == -signal.SIGKILL
            before = reached
            if reached or path.exists():  # whole, whenever it ended
                assert reached <= Checkpoint.load(path).generated <= 120
                reached = Checkpoint.load(path).generated
            longest += 0.1 * (reached == before)  # a busy machine takes longer to get anywhere
        kills += killed
        with engine_with(shared_model(name)) as engine:
            result = engine.resume(path).result()
        expected = plain(shared_model(name), PROMPT, 120, temperature=0.8, seed=seed)
        assert (result.tokens, result.text) == (expected.tokens, expected.text)
    left = sorted(entry.name for entry in tmp_path.iterdir())
    assert left == sorted(f"reply {n + 1}" for n in range(seed))


class ActiveConstraint:
    """Holds itself, and so a run, until Python looks for garbage."""

    def __init__(self, run: Run) -> None:
        self.itself, self.run = self, run


@pytest.mark.parametrize("read", [8, 20])
def test_a_run_that_is_collected_by_the_thread_that_writes_keeps_nobody_from_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    file, write = tmp_path / "reply", Checkpoint.write
    begun, dropped = threading.Event(), threading.Event()

    def writes(self: Checkpoint, path: Path) -> None:
        if begun.is_set():
            assert dropped.wait(AT_ALL)
            gc.collect()
        write(self, path)
        begun.set()

    monkeypatch.setattr(Checkpoint, "write", writes)
    options: dict[str, Any] = {"max_tokens": 20, "eos_token_ids": ()}
    gc.disable()
    try:
        with engine_with(shared_model("llama")) as engine:
            run = engine.stream(PROMPT, checkpoint=file, checkpoint_every=2, **options)
            holder = ActiveConstraint(run)
            for count in range(read):
                next(run)
                assert count < 4 or begun.wait(AT_ALL)
            del holder, run
            dropped.set()
            result = engine.resume(file).result()
            other = engine.generate(PROMPT, checkpoint=tmp_path / "other", **options)
    finally:
        gc.enable()
    assert result.tokens == other.tokens == plain(shared_model("llama"), PROMPT, 20).tokens


class Interrupting:
    """Raises ``KeyboardInterrupt`` in this thread at the n-th line of one module."""

    def __init__(self, module: str, line: int) -> None:
        self.module, self.left = module, line

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:  # noqa: ARG002
        return self.inside if frame.f_globals["__name__"] == self.module else None

    def inside(self, frame: FrameType, event: str, argument: object) -> Any:  # noqa: ARG002
        at = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not at.startswith("with "):  # Python lets none in at its end
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self.inside


def interrupted(path: Path, line: int) -> bool:
    """Whether Ctrl-C at a line of the writer of checkpoints came before a reply was whole."""
    ended: list[bool] = []

    def generate() -> None:
        with engine_with(shared_model("llama")) as engine:
            sys.settrace(Interrupting("mlxfill.checkpoint.writer", line))
            try:
                engine.generate(PROMPT, checkpoint=path, checkpoint_every=20, **OPTIONS)
            except KeyboardInterrupt:
                ended.append(True)
            else:
                ended.append(False)
            finally:
                sys.settrace(None)

    thread = threading.Thread(target=generate, daemon=True)
    thread.start()
    thread.join(AT_ALL)
    assert ended, f"it waits for ever after Ctrl-C at line {line}"
    return ended[0]


def test_ctrl_c_at_any_line_of_the_writer_leaves_nobody_waiting(tmp_path: Path) -> None:
    """A thread that had not begun yet, or a checkpoint that it never got, was waited for."""
    expected = plain(shared_model("llama"), PROMPT, 30).tokens
    line = 1
    while interrupted(tmp_path / f"reply {line}", line):
        line += 1
    assert line > 20
    for path in tmp_path.glob("reply *[0-9]"):
        with engine_with(shared_model("llama")) as engine:
            assert engine.resume(path).result().tokens == expected
