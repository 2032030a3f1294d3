"""Measure requests that share forwards, checkpoints and second turns, and print the table.

    python benchmarks/rows.py [--rounds N] [--tokens N] [--only ROW,ROW] [--json FILE]

Four requests at once to SmolLM2 in fp32, against mlx-lm's batches: tokens per second of all
together, prompts included.  Every round runs all contestants; a ratio is taken inside each
round.  All contestants run the same weights: where a model happens to lie in memory makes 5 % of
a step.  What a checkpoint costs and what a second turn saves: ``resumption.py``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import blas
import prompts
import real_model
import resumption
import table
from contest import first_difference
from decode import header, warn_of_load
from duels import Reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    Ids = list[list[int]]

CONTEXT = (
    "Ships from Bergen and Aberdeen used the light of the tower to find the harbour in the fog.",
    "Every evening the keeper climbed the narrow stairs, cleaned the glass and filled the lamp.",
    "The children of the village learned to count by the rhythm of the beam over the water.",
    "In winter the cliff was white with salt and snow, and nobody came for many weeks on end.",
)
COPIES = [
    f"Repeat the following text exactly, word for word:\n\n{prompts.TEXT} {more}"
    for more in CONTEXT
]
FREE = [
    prompts.FREE_STORY,
    prompts.FREE_EXPLAIN,
    "Describe a walk through a forest in autumn.",
    "Give advice to somebody who wants to learn the piano.",
]
PLAIN, LOOKUP, BATCHES = "mlxfill", "mlxfill + spec-ngram", "mlx-lm BatchGenerator"


@dataclass(frozen=True)
class Race:
    """Ours against theirs on four prompts."""

    key: str
    what: str
    prompts: Sequence[str]
    ours: str
    theirs: str
    reach: Reach


RACES = (
    Race(
        "copy",
        "copy four texts, rows with spec-ngram",
        COPIES,
        LOOKUP,
        BATCHES,
        Reach("at least", 1.5),
    ),
    Race(
        "free",
        "four free-form replies, drafting on / off",
        FREE,
        LOOKUP,
        PLAIN,
        Reach("at least", 0.97),
    ),
    Race(
        "plain", "four free-form replies, no plugins", FREE, PLAIN, BATCHES, Reach("at least", 0.95)
    ),
)


Row = Race | Callable[[int], list[table.Outcome]]


@dataclass
class Runs:
    """Rates in tokens per second, and the ids of the last run."""

    rates: list[float] = field(default_factory=list)
    ids: Ids = field(default_factory=list)


def main() -> None:
    """Measure the rows asked for."""
    arguments = parse()
    blas.restart_with_openblas()
    machine = header(rounds=arguments.rounds, tokens=arguments.tokens)
    warn_of_load()
    races = [row for row in arguments.only if isinstance(row, Race)]
    outcomes = measure(races, arguments.rounds, arguments.tokens) if races else []
    for row in arguments.only:
        if not isinstance(row, Race):
            outcomes += row(arguments.rounds)
    table.show(", ".join(f"{key} {value}" for key, value in machine.items()), outcomes)
    if arguments.json:
        table.save(arguments.json, machine, outcomes)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    names: dict[str, Row] = {race.key: race for race in RACES}
    names |= {
        "write": resumption.write_times,
        "share": lambda rounds: resumption.decode_shares(str(real_model.ensure("fp32")), rounds),
        "turns": lambda rounds: resumption.second_turns(str(real_model.ensure("fp32")), rounds),
    }

    def chosen(text: str) -> list[Row]:
        try:
            return [names[key] for key in text.split(",")]
        except KeyError as error:
            message = f"no row {error}; there are {', '.join(names)}"
            raise argparse.ArgumentTypeError(message) from error

    parser.add_argument("--only", type=chosen, default=list(names.values()))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def measure(races: Sequence[Race], rounds: int, tokens: int) -> list[table.Outcome]:
    """All races, those on the same prompts in the same rounds."""
    import mlx_lm

    folder = real_model.ensure("fp32")
    model, tokenizer, *_ = mlx_lm.load(str(folder))
    arms: dict[str, Callable[[Ids, int], Ids]] = {
        PLAIN: ours(model, tokenizer, folder, []),
        LOOKUP: ours(model, tokenizer, folder, ["spec-ngram"]),
        BATCHES: theirs(model, tokenizer),
    }
    outcomes = []
    for asked in {id(race.prompts): race.prompts for race in races}.values():
        mine = [race for race in races if race.prompts is asked]
        names = sorted({name for race in mine for name in (race.ours, race.theirs)})
        runs = hold({name: arms[name] for name in names}, ids_of(folder, asked), rounds, tokens)
        outcomes += [outcome(race, runs) for race in mine]
    return outcomes


def hold(
    arms: dict[str, Callable[[Ids, int], Ids]], asked: Ids, rounds: int, tokens: int
) -> dict[str, Runs]:
    """Warm every contestant up, then let all of them answer in each round."""
    runs = {name: Runs() for name in arms}
    for arm in arms.values():
        arm(asked, 8)
    for number in range(rounds):
        for name in list(arms) if number % 2 == 0 else list(arms)[::-1]:
            started = time.perf_counter()
            runs[name].ids = arms[name](asked, tokens)
            seconds = time.perf_counter() - started
            runs[name].rates.append(sum(map(len, runs[name].ids)) / seconds)
        rates = ", ".join(f"{name} {each.rates[-1]:.1f}" for name, each in runs.items())
        print(f"{number + 1}/{rounds}: {rates} tokens/s", file=sys.stderr, flush=True)
    return runs


def outcome(race: Race, runs: dict[str, Runs]) -> table.Outcome:
    """The table's row of a race."""
    a, b = runs[race.ours], runs[race.theirs]
    ratios = [x / y for x, y in zip(a.rates, b.rates, strict=True)]
    value = statistics.median(ratios)
    parts = [
        f"request {at}, token {first_difference(x, y)}"
        for at, (x, y) in enumerate(zip(a.ids, b.ids, strict=True))
        if x != y
    ]
    return table.Outcome(
        key=race.key,
        what=race.what,
        ours=f"{race.ours} {statistics.median(a.rates):.1f} tok/s",
        theirs=f"{race.theirs} {statistics.median(b.rates):.1f} tok/s",
        value=value,
        reach=str(race.reach),
        passed=race.reach.met(value),
        spread=f"{min(ratios):.2f} to {max(ratios):.2f}",
        difference="; ".join(parts),
        rounds={race.ours: a.rates, race.theirs: b.rates},
    )


def ids_of(folder: Path, asked: Sequence[str]) -> Ids:
    """Put the questions through the model's chat template."""
    from mlx_lm.tokenizer_utils import load

    tokenizer = load(folder)
    chats = [[{"role": "user", "content": question}] for question in asked]
    return [list(tokenizer.apply_chat_template(c, add_generation_prompt=True)) for c in chats]


def ours(
    model: Any,  # noqa: ANN401
    tokenizer: Any,  # noqa: ANN401
    folder: Path,
    plugins: list[str],
) -> Callable[[Ids, int], Ids]:
    """All prompts through ``Engine.generate_batch``."""
    import mlxfill

    engine = mlxfill.Engine(model, tokenizer, plugins=plugins, config={}, path=folder)
    engine.prepare()

    def run(asked: Ids, tokens: int) -> Ids:
        requests = [{"prompt": ids, "max_tokens": tokens} for ids in asked]
        return [result.tokens for result in engine.generate_batch(requests)]

    return run


def theirs(model: Any, tokenizer: Any) -> Callable[[Ids, int], Ids]:  # noqa: ANN401
    """All prompts through mlx-lm's ``BatchGenerator``."""
    from mlx_lm.generate import BatchGenerator

    stops = [[token] for token in tokenizer.eos_token_ids]

    def run(asked: Ids, tokens: int) -> Ids:
        batches: Any = BatchGenerator(model, stop_tokens=stops)
        uids = batches.insert(asked, [tokens] * len(asked))
        said: dict[int, list[int]] = {uid: [] for uid in uids}
        while responses := batches.next_generated():
            for response in responses:
                if response.finish_reason != "stop":
                    said[response.uid].append(response.token)
        batches.close()
        return [said[uid] for uid in uids]

    return run


if __name__ == "__main__":
    main()
