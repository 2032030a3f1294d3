"""Measure drafting with a second model, an MTP head and a block drafter, and print the table.

    python benchmarks/drafters.py [--rounds N] [--turns N] [--only ROW,ROW] [--json FILE]

All on the tiny models, fp32, with OpenBLAS where there is one; what each row compares stands in
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import difflib
import statistics
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

import blas
import table
from arms import Arm, MlxLmArm
from contest import hold
from decode import at_least, header, measure_without_openblas, warn_of_load
from draft_arms import (
    BLOCK,
    DRAFT,
    HEAD,
    TINY,
    DraftingArm,
    MtplxArm,
    SpeculativeArm,
    Turns,
    VlmArm,
    reads_a_round,
    remade,
    turns,
)
from duels import FASTER, LITTLE_LOSS, Reach
from table import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TWO_MODEL, MTP, DFLASH = "spec-two-model", "spec-qwen-mtp", "spec-dflash"
MAX_TOKENS = 200
DRAWN_ROW = "drawn"
"""Rows whose key holds this word draw at random: no two programs draw the same ids."""
DEPTH = {TWO_MODEL: 3, MTP: 2, DFLASH: 7}
DRAWN = 1.2
PAYS, FASTER_LOOP = Reach("at least", 1.2), Reach("at least", 1.1)
BLOCK_PAYS = Reach("at least", 1.25)


@frozen
class Row:
    """One line of the table.  ``slow``: measured without OpenBLAS."""

    key: str
    measure: Callable[[str, argparse.Namespace], Outcome]
    slow: bool = False


def duel(
    make: tuple[Callable[[], DraftingArm], Callable[[], Arm]],
    what: str,
    reach: Reach,
    key: str,
    arguments: argparse.Namespace,
) -> Outcome:
    """Let two arms answer the same turns, round after round."""
    prompts = turns(arguments.turns)
    with ExitStack() as closing:
        ours, theirs = (Turns(each(), prompts) for each in make)
        for arm in (ours, theirs):
            closing.callback(arm.close)
        # A whole turn of warm-up: an engine gets to know its drafter.
        for arm in (ours, theirs):
            arm.run((), MAX_TOKENS)
        contest = hold(key, [theirs, ours], (), MAX_TOKENS, arguments.rounds)
    ratios = contest.ratios(ours.name, theirs.name)
    sides = [f"{contest.rate(arm.name):.0f} tokens/s" for arm in (ours, theirs)]
    value = statistics.median(ratios)
    return Outcome(
        key,
        what,
        f"{sides[0]}, {ours.name.removeprefix('mlxfill + ')}",
        f"{sides[1]}, {theirs.name}",
        value,
        str(reach),
        reach.met(value),
        spread=f"{min(ratios):.2f} to {max(ratios):.2f}",
        difference=None if DRAWN_ROW in key else contest.difference(theirs.name, ours.name),
        rounds={arm.name: [run.rate for run in contest.runs[arm.name]] for arm in (ours, theirs)},
    )


def tokens_a_round(
    make: tuple[Callable[[], DraftingArm], Callable[[], Arm] | None],
    what: str,
    reach: Reach,
    key: str,
    arguments: argparse.Namespace,
) -> Outcome:
    """Count what a drafted round yields, beside another implementation with the same drafter."""
    prompts, (ours, theirs) = turns(arguments.turns), make
    with ExitStack() as closing:
        arm = ours()
        closing.callback(arm.close)
        for prompt in prompts:
            arm.run(prompt, MAX_TOKENS)
        against = ""
        if theirs is not None:
            other = Turns(theirs(), prompts)
            closing.callback(other.close)
            run = other.run((), MAX_TOKENS)
            # Their first token comes from the prompt's own forward, and so many turns end: the
            # last round of each also says that, as ours does.
            against = f"{len(run.ids) / (run.forwards or 1):.2f}, {other.name}"
    value = arm.tokens_a_round
    return Outcome(key, what, f"{value:.2f}", against, value, str(reach), reach.met(value))


def reads(draft: Path, plugin: str, reach: Reach, key: str, _: argparse.Namespace) -> Outcome:
    """Count how often the host waits for the device in a round."""
    value = reads_a_round(turns(1)[0], draft, plugin)
    return Outcome(
        key, f"reads a round, {plugin}", f"{value:g}", "", value, str(reach), reach.met(value)
    )


# --- contestants ------------------------------------------------------------------------------


def drafting(
    draft: Path, plugin: str, target: Path = TINY, *, gate: bool = True, temperature: float = 0.0
) -> Callable[[], DraftingArm]:
    """A drafting engine; without the gate it always drafts to its full depth."""
    return partial(
        DraftingArm,
        f"mlxfill + {plugin}",
        target,
        draft,
        plugin,
        DEPTH[plugin],
        gate=gate,
        temperature=temperature,
    )


def plain(target: Path = TINY) -> Callable[[], Arm]:
    """mlx-lm without drafts."""
    return partial(MlxLmArm, target)


def all_rows() -> dict[str, Row]:
    """The table, by key.  Models made from the tiny ones are made now."""
    shaken = remade("tiny-draft-shaken", DRAFT, "shaken")
    guess = remade("tiny-draft-random", DRAFT, "random")
    half, half_draft, half_head = (
        remade(f"{name}-bf16", source, "bf16")
        for name, source in (("tiny", TINY), ("tiny-draft", DRAFT), ("tiny-mtp", HEAD))
    )
    pair = drafting(shaken, TWO_MODEL, DRAFT, gate=False)
    loop = partial(SpeculativeArm, DRAFT, shaken, DEPTH[TWO_MODEL])
    drawn = drafting(shaken, TWO_MODEL, DRAFT, gate=False, temperature=DRAWN)
    drawing = partial(loop, DRAWN)
    draft, head = drafting(DRAFT, TWO_MODEL, gate=False), drafting(HEAD, MTP, gate=False)
    vlm, mtplx = partial(VlmArm, TINY, HEAD), partial(MtplxArm, TINY, HEAD, DEPTH[MTP])
    block, vlm_block = drafting(BLOCK, DFLASH, gate=False), partial(VlmArm, TINY, BLOCK, "dflash")
    wrong = remade("tiny-dflash-random", BLOCK, "random")
    rows = [
        Row("loop", partial(duel, (pair, loop), "dense pair, 3 drafts", FASTER_LOOP)),
        Row("loop-drawn", partial(duel, (drawn, drawing), f"temperature {DRAWN}", FASTER_LOOP)),
        Row(
            "draft-yield",
            partial(
                tokens_a_round, (draft, None), "tokens a round, 3 drafts", Reach("at least", 3.4)
            ),
        ),
        Row(
            "mtp-yield",
            partial(
                tokens_a_round, (head, vlm), "tokens a round, 2 drafts", Reach("at least", 2.6)
            ),
        ),
        Row(
            "mtp-yield-mtplx",
            partial(
                tokens_a_round, (head, mtplx), "tokens a round, 2 drafts", Reach("at least", 2.6)
            ),
        ),
        Row("mtp-vlm", partial(duel, (head, vlm), "2 drafts", FASTER)),
        Row("mtp-mtplx", partial(duel, (head, mtplx), "2 drafts", FASTER)),
        Row(
            "dflash-yield",
            partial(tokens_a_round, (block, vlm_block), "tokens a round, 7 drafts", FASTER),
        ),
        Row("dflash-vlm", partial(duel, (block, vlm_block), "7 drafts", FASTER_LOOP)),
        Row("dflash-plain", partial(duel, (drafting(BLOCK, DFLASH), plain()), "tiny", BLOCK_PAYS)),
        Row(
            "dflash-random",
            partial(duel, (drafting(wrong, DFLASH), plain()), "a random block", LITTLE_LOSS),
        ),
        Row("draft-plain", partial(duel, (drafting(DRAFT, TWO_MODEL), plain()), "tiny", PAYS)),
        Row("mtp-plain", partial(duel, (drafting(HEAD, MTP), plain()), "tiny", PAYS)),
        Row(
            "random-draft",
            partial(duel, (drafting(guess, TWO_MODEL), plain()), "a random draft", LITTLE_LOSS),
        ),
        Row(
            "draft-slow",
            partial(
                duel,
                (drafting(half_draft, TWO_MODEL, half), plain(half)),
                "bf16, slow BLAS",
                LITTLE_LOSS,
            ),
            slow=True,
        ),
        Row(
            "mtp-slow",
            partial(
                duel, (drafting(half_head, MTP, half), plain(half)), "bf16, slow BLAS", LITTLE_LOSS
            ),
            slow=True,
        ),
        Row("draft-reads", partial(reads, DRAFT, TWO_MODEL, Reach("at most", 1.0))),
        Row("dflash-reads", partial(reads, BLOCK, DFLASH, Reach("at most", 1.0))),
        Row("mtp-reads", partial(reads, HEAD, MTP, Reach("at most", 1.0))),
    ]
    return {row.key: row for row in rows}


# --- the program ----------------------------------------------------------------------------------


def main() -> None:
    """Measure the rows asked for and print them in the order of the table."""
    rows = all_rows()
    arguments = parse(list(rows))
    blas.restart_with_openblas()
    machine = header(rounds=arguments.rounds, turns=arguments.turns)
    warn_of_load()
    chosen = [rows[key] for key in arguments.only]
    elsewhere = [row for row in chosen if row.slow and blas.restarted()]
    outcomes = [row.measure(row.key, arguments) for row in chosen if row not in elsewhere]
    if elsewhere:
        options = [f"--rounds={arguments.rounds}", f"--turns={arguments.turns}"]
        outcomes += measure_without_openblas([row.key for row in elsewhere], options)
    outcomes.sort(key=lambda outcome: list(rows).index(outcome.key))
    table.show(", ".join(f"{key} {value}" for key, value in machine.items()), outcomes)
    if arguments.json:
        table.save(arguments.json, machine, outcomes)


def parse(keys: Sequence[str]) -> argparse.Namespace:
    """Read the command line; a bad value ends the program with one line and status 2."""

    def rows_named(text: str) -> list[str]:
        for name in text.split(","):
            if name not in keys:
                near = difflib.get_close_matches(name, keys, n=1, cutoff=0)
                raise argparse.ArgumentTypeError(f"no row {name!r}; nearest: {near[0]}")
        return text.split(",")

    parser = argparse.ArgumentParser(description="Measure mlxfill's drafters.")
    parser.add_argument("--rounds", type=at_least(1), default=7, help="default: 7")
    parser.add_argument("--turns", type=at_least(1), default=12, help="asks a round, default: 12")
    parser.add_argument("--only", type=rows_named, default=list(keys), metavar="ROW,ROW")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
