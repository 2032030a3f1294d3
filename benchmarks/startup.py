"""Measure how long `mlxfill --help`, finding plugins, and a reply of a few tokens take.

    python benchmarks/startup.py [--rounds N] [--plugins N] [--model FOLDER ...]

With ``--model`` it asks that model for 8 tokens by `mlxfill generate` and by `mlx_lm.generate`, a
process each, in turns: wall seconds, and those of the CPU (user and system of the process), which
say more on a machine that others use.

The plugins are dummies in a temporary folder: metadata with a long README, a command and a module
with one hook each.  Every measurement is a process of its own; the rounds are interleaved, so
that load on the machine meets all rows alike.  "discovery" reads the metadata of everything
installed, "discovery and import" switches all plugins on as well.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mlxfill.config import load_config
from mlxfill.plugins import PluginManager

if TYPE_CHECKING:
    from collections.abc import Callable

HELP_REACH, DISCOVERY_REACH = 0.25, 0.050
"""Seconds that the help page and discovery may take."""

TOKENS, PROMPT = 8, "Which files changed?"
"""Of the reply that is compared with mlx-lm's."""

METADATA = """\
Metadata-Version: 2.4
Name: mlxfill-dummy-{0}
Version: 1.0
Summary: Dummy number {0}

"""
ENTRY_POINTS = """\
[mlxfill]
dummy-{0} = mlxfill_dummy_{0}
[mlxfill.commands]
dummy-{0} = mlxfill_dummy_{0}
"""
README_LINE = "A line of a README that lies in the metadata as on PyPI.\n"

MODULE = """\
import mlxfill

MLXFILL_API = 2


@mlxfill.hookimpl
def mlxfill_observe(event):
    pass
"""
DISCOVER = """\
import sys, time
from mlxfill import load_config
from mlxfill.plugins import PluginManager, scan
config = load_config({})
begin = time.perf_counter()
names = scan().plugins if sys.argv[1] == "scan" else PluginManager.load(config).names
print(time.perf_counter() - begin, sum(name.startswith("dummy-") for name in names))
"""


def install_dummies(folder: Path, count: int) -> None:
    """Lay out ``count`` installed distributions, each with one plugin, in ``folder``."""
    for number in range(count):
        info = folder / f"mlxfill_dummy_{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(METADATA.format(number) + README_LINE * 200)
        (info / "entry_points.txt").write_text(ENTRY_POINTS.format(number))
        (folder / f"mlxfill_dummy_{number}.py").write_text(MODULE)


def help_seconds(folder: Path) -> float:
    """Wall-clock seconds of `mlxfill --help` with what is installed in ``folder`` besides."""
    begin = time.perf_counter()
    run(["-m", "mlxfill", "--help"], folder)
    return time.perf_counter() - begin


def discovery_seconds(folder: Path, count: int, how: str) -> float:
    """Seconds to find all plugins (``how`` "scan"), or to import them as well ("load")."""
    seconds, found = run(["-c", DISCOVER, how], folder).split()
    if int(found) != count:
        raise SystemExit(f"found {found} dummies instead of {count}")
    return float(seconds)


def run(arguments: list[str], folder: Path) -> str:
    """Run Python with ``folder`` on its path; returns what it printed."""
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, *arguments]
    return subprocess.run(  # noqa: S603 - our own interpreter and arguments
        command, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True
    ).stdout


def cpu_and_wall(command: list[str]) -> tuple[float, float]:
    """Seconds of the CPU and of the clock that a command takes."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def print_reply(named: str, rounds: int) -> None:
    """Compare a short reply with mlx-lm's; the first round, which warms up, is left out."""
    model = PluginManager.load(load_config({})).resolve_model(named) or named
    ask = ["--model", str(model), "--max-tokens", str(TOKENS)]
    sides = {
        "mlxfill": [sys.executable, "-m", "mlxfill", "generate", *ask, PROMPT],
        "mlx-lm": [sys.executable, "-m", "mlx_lm", "generate", *ask, "--prompt", PROMPT],
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        turns = list(sides.items())
        for name, command in turns if number % 2 else reversed(turns):
            seconds[name].append(cpu_and_wall(command))
    load = os.getloadavg()[0]
    print(f"\n{TOKENS} tokens of {named}, load {load:.1f} on {os.cpu_count()} cores")
    for at, what in enumerate(("CPU", "wall")):
        ours, theirs = ([pair[at] for pair in seconds[name][1:]] for name in sides)
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        medians = [statistics.median(each) for each in (ours, theirs)]
        line = f"mlxfill{medians[0]:7.2f} s   mlx-lm{medians[1]:7.2f} s   ratio {ratio:.2f}"
        print(f"{what:5}{line}")


def measure(rounds: int, count: int) -> dict[str, list[float]]:
    """Seconds of every row, one value a round; the first round, which warms up, is left out."""
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as full:
        install_dummies(Path(full), count)
        rows: dict[str, Callable[[], float]] = {
            "help": lambda: help_seconds(Path(empty)),
            f"help, {count} plugins": lambda: help_seconds(Path(full)),
            f"discovery, {count} plugins": lambda: discovery_seconds(Path(full), count, "scan"),
            "discovery and import": lambda: discovery_seconds(Path(full), count, "load"),
        }
        seconds: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(rounds + 1):
            for name, row in rows.items():
                seconds[name].append(row())
    return {name: values[1:] for name, values in seconds.items()}


def main() -> None:
    """Print median and best of every row beside the time that it may take."""
    parser = argparse.ArgumentParser(description="Measure the start-up of mlxfill.")
    parser.add_argument("--rounds", type=int, default=15, help="default: 15")
    parser.add_argument("--plugins", type=int, default=50, help="default: 50")
    parser.add_argument(
        "--model", action="append", default=[], help="compare a reply; may be repeated"
    )
    options = parser.parse_args()
    for model in options.model:
        print_reply(model, options.rounds)
    if options.model:
        return
    print(f"{'row':24}{'median':>10}{'best':>10}{'reach':>10}")
    for name, values in measure(options.rounds, options.plugins).items():
        reach = HELP_REACH if name.startswith("help") else DISCOVERY_REACH
        median, best = statistics.median(values) * 1000, min(values) * 1000
        print(f"{name:24}{median:7.1f} ms{best:7.1f} ms{reach * 1000:7.0f} ms")


if __name__ == "__main__":
    main()
