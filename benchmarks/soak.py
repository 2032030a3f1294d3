"""An hour of random requests through everything: no fault, no other token, no growing memory.

    python benchmarks/soak.py [--minutes N] [--seed N] [--json FILE]
    python benchmarks/soak.py --seed N --episode N      # one episode again

One process opens engines with random plugins, drafters and settings, asks them in every way there
is, over HTTP as well, and closes them.  Every reply is compared with plain decoding of the same
request.  What goes wrong is printed with the command that repeats it.  Linux only (``/proc``).
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from itertools import product
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from soak_memory import Sample, as_json, look, verdict

if TYPE_CHECKING:
    from soak_acts import Tally
    from soak_judge import World

WARM = 1 / 3
"""Share of the time after which caches, pools and the C library's reserves are filled."""
RESERVES = ("MALLOC_ARENA_MAX", "2")
HANGS = 300
"""Seconds after which an episode counts as hanging; all threads are then printed."""


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episode", type=int, help="only this one")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    few_reserves()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = os.environ["HOME"] = folder
        for name in [name for name in os.environ if name.startswith("MLXFILL_")]:
            del os.environ[name]
        sys.exit(run(options, Path(folder)))


def few_reserves() -> None:
    """Start again with fewer of the reserves of freed memory that glibc keeps for threads.

    By default there are eight for each core.  A server in every other episode, with threads of its
    own, fills one after the other: what the process holds would level off after hours only.
    """
    if RESERVES[0] not in os.environ:
        os.environ.update([RESERVES])
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - itself


def share_words() -> None:
    """Let all tokenizers that are loaded from a folder remember words in one place, full at once.

    ``tokenizers`` keeps what one of them remembers, up to 10,000 words in 4 MB, after it is gone:
    docs/limits.md.  A server loads one.  A soak loads hundreds, and looks for what grows besides.
    """
    from mlx_lm import utils

    module: Any = utils
    load = module.load_tokenizer
    models: dict[Path, Any] = {}

    def sharing(path: Path, *rest: Any, **named: Any) -> Any:  # noqa: ANN401 - mlx-lm's
        wrapped = load(path, *rest, **named)
        tokenizer = wrapped._tokenizer.backend_tokenizer  # noqa: SLF001 - no public way
        if path not in models:
            models[path] = tokenizer.model
            tokenizer.encode(" ".join(map("".join, product(ascii_lowercase, repeat=3))))
        tokenizer.model = models[path]
        return wrapped

    module.load_tokenizer = sharing


def run(options: argparse.Namespace, folder: Path) -> int:
    """The exit code."""
    import mlx.core as mx

    from soak_acts import Tally
    from soak_judge import World

    mx.set_default_device(mx.cpu)
    share_words()
    console, world, tally = Console(), World(folder), Tally()
    world.prepare()
    if options.episode is not None:
        failures = play_one(console, world, tally, options.seed, options.episode)
        console.print(f"{tally.requests} requests, {len(failures)} failures", highlight=False)
        return bool(failures)
    samples, failures, minutes = soak(console, world, tally, options.seed, options.minutes)
    slopes = verdict(samples, WARM * options.minutes)
    report(console, tally, failures, minutes)
    for name, slope in slopes.items():
        console.print(slope.line(name), highlight=False, soft_wrap=True)
    growing = [name for name, slope in slopes.items() if not slope.flat]
    if options.json:
        facts = {"minutes": minutes, "seed": options.seed, "requests": tally.requests}
        counted = {"acts": dict(tally.acts), "origins": dict(tally.origins), "failures": failures}
        options.json.write_text(
            json.dumps({**facts, **counted, **as_json(samples, slopes)}, indent=1), "utf-8"
        )
    world.close()
    console.print("failed" if failures or growing else "passed")
    return bool(failures or growing)


def soak(
    console: Console, world: World, tally: Tally, seed: int, minutes: float
) -> tuple[list[Sample], list[str], float]:
    """Episode after episode, with a look at the memory every minute."""
    begun, number = time.monotonic(), 0
    samples: list[Sample] = []
    failures: list[str] = []
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("soaking", total=minutes)
        while (passed := (time.monotonic() - begun) / 60) < minutes:
            if passed >= len(samples):
                samples.append(look(passed, tally.requests))
                console.print(samples[-1].line(), highlight=False, soft_wrap=True)
            failures += play_one(console, world, tally, seed, number)
            number += 1
            what = f"{tally.requests} requests, {len(failures)} failures"
            progress.update(task, completed=passed, description=what)
    passed = (time.monotonic() - begun) / 60
    samples.append(look(passed, tally.requests))
    return samples, failures, passed


def play_one(console: Console, world: World, tally: Tally, seed: int, number: int) -> list[str]:
    """One episode; what went wrong in it, at most one thing."""
    from soak_scenes import episode

    faulthandler.dump_traceback_later(HANGS, exit=True)
    try:
        episode(world, Random(f"{seed} {number}"), tally)  # noqa: S311 - a soak repeats itself
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what a soak looks for
        again = f"python benchmarks/soak.py --seed {seed} --episode {number}"
        said = "".join(traceback.format_exception(error))
        console.print(f"{said}{again}", highlight=False, markup=False, soft_wrap=True)
        return [f"{again}: {type(error).__name__}: {error}"[:1000]]
    finally:
        faulthandler.cancel_dump_traceback_later()
    return []


def report(console: Console, tally: Tally, failures: list[str], minutes: float) -> None:
    """What was done, and what went wrong."""

    def counted(counts: Counter[str]) -> str:
        return ", ".join(f"{count} {name}" for name, count in counts.most_common())

    lines: list[Any] = [
        f"{tally.requests} requests in {minutes:.1f} minutes, {len(failures)} failures",
        f"episodes and acts: {counted(tally.acts)}",
        f"tokens by origin: {counted(tally.origins)}; {tally.forwards} forwards",
        *failures,
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
