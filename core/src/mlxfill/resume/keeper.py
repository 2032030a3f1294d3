"""When a run leaves checkpoints."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from mlxfill.checkpoint import file
from mlxfill.checkpoint.lock import CheckpointLock
from mlxfill.checkpoint.writer import Writer
from mlxfill.contracts import Fault
from mlxfill.errors import CheckpointError
from mlxfill.plugins.faults import NOT_KEPT
from mlxfill.resume.capture import capture

if TYPE_CHECKING:
    from mlxfill.decode.runstate import RunState
    from mlxfill.request.options import Options
    from mlxfill.resume.identity import Identity

EVERY = 256
"""Tokens between two checkpoints of a request that asks for them and does not say how many."""
SHARE = 0.03
"""Of the time since the last checkpoint, the most that one may take of such a request."""


class Keeper:
    """Takes the checkpoints of one run: every so many tokens, on request, and at its end."""

    def __init__(self, identity: Identity, options: Options, *, resumed: bool = False) -> None:
        """Lock the file, if one is named.

        :param resumed: whether the run goes on from what the file may hold.
        :raises CheckpointError: another process has it, or it holds something worth keeping.
        """
        self._identity, self._tell = identity, options.on_checkpoint
        every = options.checkpoint_every
        self._every = self._next = EVERY if every is None else every
        self._bounded = every is None
        self._wanted = False
        self._took_s, self._since = 0.0, time.perf_counter()
        self._writer: Writer | None = None
        self._lock: CheckpointLock | None = None
        if options.checkpoint is not None:
            path = Path(options.checkpoint)
            self._lock = CheckpointLock(path)
            self._writer = Writer(path)
            if not resumed:
                self._check_free(path)

    def _check_free(self, path: Path) -> None:
        """Refuse to replace what someone may still want to go on with, or what is not ours."""
        try:
            unfinished = path.exists() and file.unfinished(path)
        except CheckpointError:
            self.release()
            raise
        if unfinished:
            self.release()
            raise CheckpointError(
                f"{path} holds an unfinished generation: resume it (mlxfill resume {path}),"
                " or remove the file"
            )

    def request(self) -> None:
        """Take one at the next boundary."""
        self._wanted = True

    def begin(self, generated: int) -> None:
        """The run begins with so many tokens of its reply."""
        self._schedule(generated)

    def due(self, generated: int) -> bool:
        """Whether to pause after so many tokens."""
        return self._wanted or (self._every > 0 and generated >= self._next and self._rested())

    def _rested(self) -> bool:
        """Whether the last one is written, and so long ago that the next one takes little time.

        Where the disk is slow, checkpoints come less often and none waits behind another; only the
        last one is always written.
        """
        if self._writer is not None and self._writer.busy:
            return False
        cost = self._took_s + (0.0 if self._writer is None else self._writer.took_s)
        return not self._bounded or cost <= SHARE * (time.perf_counter() - self._since)

    def take(self, run: RunState) -> None:
        """Store the run, which stands between two forwards."""
        self._wanted = False
        self._schedule(len(run.reply.tokens))
        started = time.perf_counter()
        checkpoint = capture(self._identity, run)
        self._since = time.perf_counter()
        self._took_s = self._since - started
        if self._writer is not None:
            self._writer.put(checkpoint.write)
        if self._tell is not None:
            self._tell(checkpoint)

    def finish(self, run: RunState) -> None:
        """The run is over: store its end, wait for the disk, and let go of the file."""
        over = run.ending is not None and run.ending.reason not in {"cancelled", "error"}
        try:
            if over and not run.only_told:
                self.take(run)
        finally:
            if self._writer is not None:
                self._writer.close(self.release)
        if self._writer is not None and self._writer.error is not None:
            run.faults.append(Fault(*NOT_KEPT, str(self._writer.error)))

    def release(self) -> None:
        """Let go of the file."""
        if self._lock is not None:
            self._lock.release()

    def _schedule(self, generated: int) -> None:
        if self._every:
            self._next = (generated // self._every + 1) * self._every
