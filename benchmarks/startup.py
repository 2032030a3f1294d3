"""Measure how long `mlxfill --help` and finding plugins take, with none and with 50 installed.

    python benchmarks/startup.py [--rounds N] [--plugins N]

The plugins are dummies in a temporary folder: metadata with a long README, a command and a module
with one hook each.  Every measurement is a process of its own; the rounds are interleaved, so
that load on the machine meets all rows alike.  "discovery" reads the metadata of everything
installed, "discovery and import" switches all plugins on as well.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HELP_REACH, DISCOVERY_REACH = 0.25, 0.050
"""Seconds that the help page and discovery may take."""

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
    options = parser.parse_args()
    print(f"{'row':24}{'median':>10}{'best':>10}{'reach':>10}")
    for name, values in measure(options.rounds, options.plugins).items():
        reach = HELP_REACH if name.startswith("help") else DISCOVERY_REACH
        median, best = statistics.median(values) * 1000, min(values) * 1000
        print(f"{name:24}{median:7.1f} ms{best:7.1f} ms{reach * 1000:7.0f} ms")


if __name__ == "__main__":
    main()
