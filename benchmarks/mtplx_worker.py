"""Answers requests for mtplx with an MTP head.  Runs inside an environment of its own.

One JSON object a line.  In: ``prompt`` (ids), ``max_tokens``.  Out: ``ids`` without the end-of-turn
token, ``seconds`` from the arrival of the first id to that of the last, ``forwards`` of the target
after the prompt.  The first line names the version.

Arguments: the folder of target and head in one, as mtplx reads them, and the drafts of a round.

mtplx is made for macOS and asks its system library for a clock when it is imported; elsewhere this
program stands in for that library.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

SYSTEM = "/usr/lib/libSystem.B.dylib"


class _Function:
    """A foreign function that is none: its types may be set like those of one."""

    def __init__(self, call: Any) -> None:  # noqa: ANN401
        self._call = call

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401
        return self._call(*arguments)


class System:
    """The three functions that are asked for; a tick of the clock is a nanosecond."""

    def __init__(self) -> None:
        self.mach_timebase_info = _Function(self._one_to_one)
        self.mach_continuous_time = _Function(time.monotonic_ns)
        self.sysctlbyname = _Function(lambda *_: 0)

    @staticmethod
    def _one_to_one(info: Any) -> int:  # noqa: ANN401 - a reference to a structure
        info._obj.numer = info._obj.denom = 1  # noqa: SLF001
        return 0


def stand_in() -> None:
    """Let ``ctypes`` find the library where there is none."""
    real: Any = ctypes.CDLL

    def find(name: str | None = None, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        missing = name == SYSTEM and not Path(SYSTEM).exists() and sys.platform != "darwin"
        return System() if missing else real(name, *arguments, **options)

    ctypes.CDLL = find  # type: ignore[assignment,misc]


def answer(runtime: Any, ends: set[int], depth: int, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Generate once, greedily."""
    arrivals: list[float] = []

    def note(tokens: list[int]) -> None:
        arrivals.extend([time.perf_counter()] * len(tokens))

    out = import_module("mtplx.generation").generate_mtpk(
        runtime,
        request["prompt"],
        max_tokens=request["max_tokens"],
        sampler=import_module("mtplx.sampling").SamplerConfig(temperature=0.0),
        speculative_depth=depth,
        verify_strategy="batched",
        # Of its ways to fill the head's cache the one that is right most often here.
        mtp_history_policy="committed",
        stop_token_ids=ends,
        token_callback=note,
    )
    ids = [token for token in out.tokens if token not in ends]
    seconds = arrivals[len(ids) - 1] - arrivals[0]
    return {"ids": ids, "seconds": seconds, "forwards": out.stats.verify_calls}


def main() -> None:
    """Load what the command line names and serve until the input ends."""
    replies, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not mix in
    stand_in()
    folder, depth = Path(sys.argv[1]), int(sys.argv[2])
    runtime = import_module("mtplx.runtime").load(folder, mtp=True)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    ends = {*config["eos_token_id"]}
    print(json.dumps({"version": version("mtplx")}), file=replies, flush=True)
    for line in sys.stdin:
        reply = answer(runtime, ends, depth, json.loads(line))
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
