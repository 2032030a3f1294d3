"""Measure how fast mlxfill is, against mlx-lm and mlx-dspark, and print the table.

    python benchmarks/decode.py [--rounds N] [--tokens N] [--only ROW,ROW] [--json FILE]

docs/benchmarks.md says what is measured and how.  Models and peers are set up on first use.
"""

from __future__ import annotations

import argparse
import difflib
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import blas
import table
from contest import hold
from contestants import Contestants, prompt_ids
from duels import DUELS, GAUGES, Duel, Gauge, Setting
from table import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from contest import Contest

Row = Duel | Gauge

ROWS: dict[str, Row] = {row.key: row for row in (*DUELS, *GAUGES)}
LEAST_TOKENS = 8
"""Fewer tokens tell nothing about decoding."""
BUSY = 0.5
"""Programs ready to run, above which measurements are doubtful."""


def main() -> None:
    """Measure the rows asked for and print them in the order of the table."""
    arguments = parse()
    blas.restart_with_openblas()
    machine = header(rounds=arguments.rounds, tokens=arguments.tokens)
    warn_of_load()
    chosen: list[Row] = arguments.only
    slow = [row for row in chosen if isinstance(row, Duel) and is_elsewhere(row)]
    outcomes = measure([row for row in chosen if row not in slow], arguments)
    if slow:
        options = [f"--rounds={arguments.rounds}", f"--tokens={arguments.tokens}"]
        outcomes += measure_without_openblas([row.key for row in slow], options)
    outcomes.sort(key=lambda outcome: list(ROWS).index(outcome.key))
    table.show(", ".join(f"{key} {value}" for key, value in machine.items()), outcomes)
    if arguments.json:
        table.save(arguments.json, machine, outcomes)


def parse() -> argparse.Namespace:
    """Read the command line; a bad value ends the program with one line and status 2."""
    parser = argparse.ArgumentParser(description="Measure mlxfill against its peers.")
    parser.add_argument("--rounds", type=at_least(1), default=5, help="default: 5")
    parser.add_argument("--tokens", type=at_least(LEAST_TOKENS), default=128, help="default: 128")
    parser.add_argument("--only", type=rows_named, default=list(ROWS.values()), metavar="ROW,ROW")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there too")
    return parser.parse_args()


class at_least:  # noqa: N801 - reads as the type of an argument
    """An argument type: an integer from ``least`` on."""

    def __init__(self, least: int) -> None:
        self._least = least

    def __call__(self, text: str) -> int:
        """Convert ``text`` or say what is wrong with it."""
        if not text.isdecimal() or int(text) < self._least:
            raise argparse.ArgumentTypeError(f"{text!r}: expected an integer >= {self._least}")
        return int(text)


def rows_named(text: str) -> list[Row]:
    """Find the rows of a comma-separated list."""
    for name in text.split(","):
        if name not in ROWS:
            near = difflib.get_close_matches(name, ROWS, n=1, cutoff=0)
            raise argparse.ArgumentTypeError(f"no row {name!r}; nearest: {near[0]}")
    return [ROWS[name] for name in text.split(",")]


def is_elsewhere(row: Duel) -> bool:
    """Say whether the row needs a process without the OpenBLAS that this one has."""
    return blas.restarted() and not row.setting.wants_openblas


def measure(rows: Sequence[Row], arguments: argparse.Namespace) -> list[Outcome]:
    """Measure rows in this process; duels on one prompt share its rounds."""
    duels = [row for row in rows if isinstance(row, Duel)]
    with Contestants() as contestants:
        contests = {
            setting: compete(setting, duels, contestants, arguments)
            for setting in dict.fromkeys(duel.setting for duel in duels)
        }
    outcomes = [judge_duel(duel, contests[duel.setting]) for duel in duels]
    return outcomes + [judge_gauge(row) for row in rows if isinstance(row, Gauge)]


def compete(
    setting: Setting,
    duels: Iterable[Duel],
    contestants: Contestants,
    arguments: argparse.Namespace,
) -> Contest:
    """Let everyone who appears in a duel of this setting decode its prompt."""
    names = dict.fromkeys(
        name for duel in duels if duel.setting == setting for name in (duel.theirs, duel.ours)
    )
    return hold(
        setting.name,
        [contestants.arm(setting.model, name) for name in names],
        prompt_ids(setting),
        max(LEAST_TOKENS, round(arguments.tokens * setting.tokens)),
        round(arguments.rounds * setting.rounds),
    )


def judge_duel(duel: Duel, contest: Contest) -> Outcome:
    """Turn the rounds of a duel into a row."""
    ratios = contest.ratios(duel.ours, duel.theirs)
    ratio = statistics.median(ratios)
    sides = (duel.ours, duel.theirs)
    ours, theirs = (f"{contest.rate(name):.1f} tokens/s" for name in sides)
    return Outcome(
        key=duel.key,
        what=f"{duel.what}, {duel.ours.removeprefix('mlxfill + ')}",
        ours=ours,
        theirs=f"{theirs}, {duel.theirs}",
        value=ratio,
        reach=str(duel.reach),
        passed=duel.reach.met(ratio),
        spread=f"{min(ratios):.3g} to {max(ratios):.3g}",
        difference=contest.difference(duel.theirs, duel.ours),
        rounds={name: [run.rate for run in contest.runs[name]] for name in sides},
    )


def judge_gauge(gauge: Gauge) -> Outcome:
    """Measure a cost and turn it into a row."""
    print(f"{gauge.key} ...", file=sys.stderr, flush=True)
    reading = gauge.measure()
    return Outcome(
        key=gauge.key,
        what=gauge.what,
        ours=reading.ours,
        theirs=reading.theirs,
        value=reading.value,
        reach=str(gauge.reach),
        passed=gauge.reach.met(reading.value),
    )


def measure_without_openblas(keys: Sequence[str], options: Sequence[str]) -> list[Outcome]:
    """Measure rows of the program that runs in a child, on the BLAS that mlx brings."""
    handle, name = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        only = ",".join(keys)
        command = [sys.executable, sys.argv[0], *options, f"--only={only}", f"--json={name}"]
        environment = blas.without_openblas()
        child = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)  # noqa: S603
        if child.returncode:
            raise SystemExit("measuring without OpenBLAS failed; see above")
        return table.read(Path(name))
    finally:
        Path(name).unlink()


def header(**settings: int) -> dict[str, str | float]:
    """Say what is measured, on what and with which settings."""
    try:
        versions = {name: version(name) for name in ("mlxfill", "mlx", "mlx-lm")}
    except PackageNotFoundError as error:
        raise SystemExit(
            f"{error.name} is not installed here; `make test` sets everything up in .venv"
        ) from None
    return {
        **versions,
        "BLAS": blas.loaded_blas(),
        "cores": os.cpu_count() or 0,
        "load": round(os.getloadavg()[0], 1),
        **settings,
    }


def warn_of_load() -> None:
    """Say so when the machine is busy: plain decoding, bound by memory, suffers the most."""
    load = os.getloadavg()[0]
    if load > BUSY:
        print(
            f"other programs run (load {load:.1f}): ratios may come out too high", file=sys.stderr
        )


if __name__ == "__main__":
    main()
