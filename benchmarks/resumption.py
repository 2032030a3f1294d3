"""Measure what checkpoints cost and what the prompt cache saves, and print the table.

    python benchmarks/resumption.py [--rounds N] [--model FOLDER] [--json FILE]

The time of a write, the share of decode time that checkpoints take, and the time
to the first token of a session's second turn against the same request without a session.  Every
round measures both sides; a ratio is taken inside each round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import blas
import real_model
import table
from decode import header, warn_of_load
from duels import Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mlxfill import Engine

CONTEXT = 4096
"""Tokens in the caches when a checkpoint is written."""
TURN = 2048
"""Tokens of a session's first prompt, about."""
PROMPT, REPLY, LARGE_REPLY = 512, 1024, 600
MOST_SHARE, MOST_RATIO = Reach("at most", 0.03), Reach("at most", 0.15)
ROUNDS, FEW = 5, 1
"""How often each is measured; a prompt of 2k tokens takes SmolLM2 a while on a CPU."""
PLAIN: dict[str, Any] = {"plugins": ["model-tiny"]}
MTP: dict[str, Any] = {"plugins": ["spec-qwen-mtp", "model-tiny"], "draft": "tiny-mtp"}


def write_times(rounds: int = ROUNDS) -> list[table.Outcome]:
    """Milliseconds of a write of the tiny model at 4k tokens, and what it holds back the loop."""
    import mlxfill

    left: list[mlxfill.Checkpoint] = []
    with mlxfill.load("tiny", **PLAIN) as engine:
        prompt = [20 + at % 900 for at in range(CONTEXT - 8)]
        engine.generate(
            prompt,
            max_tokens=12,
            eos_token_ids=(),
            on_checkpoint=left.append,
            checkpoint_every=8,
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reply"
        times = [_seconds(lambda: left[0].save(file)) * 1e3 for _ in range(2 * rounds)]
        size = file.stat().st_size / 1e6
    return [
        table.Outcome(
            key="write",
            what=f"tiny at {CONTEXT} tokens, {size:.1f} MB",
            ours=f"{statistics.median(times):.1f} ms",
            theirs="",
            value=statistics.median(times),
            reach="printed",
            passed=True,
            spread=f"{min(times):.1f} to {max(times):.1f}",
        )
    ]


def decode_shares(model: str | None = None, rounds: int = ROUNDS) -> list[table.Outcome]:
    """Decode time with a checkpoint file against none, the last write included.

    The interval is the engine's own: every 256 tokens, less often where a write takes long.
    """
    import mlxfill

    rivals: list[tuple[str, str, int, dict[str, Any]]] = [
        ("share", "tiny", REPLY, {"model": "tiny", **PLAIN})
    ]
    if model is not None:
        rivals.append(("share-smollm2", "SmolLM2-135M fp32", LARGE_REPLY, {"model": model}))
    outcomes = []
    for key, what, reply, arguments in rivals:
        with mlxfill.load(**{"plugins": [], **arguments}) as engine:
            outcomes.append(_decode_share(engine, key, f"{what}, {reply} tokens", reply, rounds))
    return outcomes


def _decode_share(engine: Engine, key: str, what: str, reply: int, rounds: int) -> table.Outcome:
    ratios: list[float] = []
    on: list[float] = []
    off: list[float] = []
    prompt = [20 + at % 900 for at in range(PROMPT)]
    with tempfile.TemporaryDirectory() as folder:
        for at in range(rounds):
            sides: list[tuple[list[float], dict[str, Any]]] = [
                (off, {}),
                (on, {"checkpoint": Path(folder) / f"reply {at}"}),
            ]
            for times, options in sides if at % 2 else reversed(sides):
                times.append(_decode_seconds(engine, prompt, reply, options))
            ratios.append(on[-1] / off[-1] - 1)
    share = statistics.median(ratios)
    return table.Outcome(
        key=key,
        what=f"{what}, with a checkpoint file",
        ours=f"{statistics.median(on):.2f} s",
        theirs=f"{statistics.median(off):.2f} s",
        value=share,
        reach=str(MOST_SHARE),
        passed=MOST_SHARE.met(share),
        spread=f"{min(ratios):.3f} to {max(ratios):.3f}",
        rounds={"with": on, "without": off},
    )


def second_turns(model: str | None = None, rounds: int = ROUNDS) -> list[table.Outcome]:
    """Time to the first token of a second turn, in its session and fresh."""
    import mlxfill

    rivals: list[tuple[str, str, int, dict[str, Any]]] = [
        ("turn", "tiny (hybrid)", rounds, {"model": "tiny", **PLAIN}),
        ("turn-mtp", "tiny with its MTP head", rounds, {"model": "tiny", **MTP}),
    ]
    if model is not None:
        loading: dict[str, Any] = {"model": model, "plugins": []}
        rivals.append(("turn-smollm2", "SmolLM2-135M fp32", min(rounds, FEW), loading))
    outcomes = []
    for key, what, count, arguments in rivals:
        with mlxfill.load(**arguments) as engine:
            outcomes.append(_second_turn(engine, key, what, count))
    return outcomes


def _second_turn(engine: Engine, key: str, what: str, rounds: int) -> table.Outcome:
    def asked() -> list[dict[str, str]]:
        return [
            {"role": "system", "content": "You are a careful assistant."},
            {"role": "user", "content": _text(engine)},
        ]

    ratios, cached, fresh, same = [], [], [], True
    for _ in range(rounds):
        engine.prompts.clear()
        messages = asked()
        first = engine.generate(messages, session="s", max_tokens=24)
        messages += [
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": "And in one sentence?"},
        ]
        told = [
            _first_token(engine, messages, session="s"),
            _first_token(engine, messages, session=None),
        ]
        (ours, our_tokens), (theirs, their_tokens) = told
        same = same and our_tokens == their_tokens
        cached.append(ours)
        fresh.append(theirs)
        ratios.append(ours / theirs)
    ratio = statistics.median(ratios)
    return table.Outcome(
        key=key,
        what=f"{what}: second turn after {len(engine.tokenizer.encode(_text(engine)))} tokens",
        ours=f"{statistics.median(cached) * 1e3:.0f} ms",
        theirs=f"{statistics.median(fresh) * 1e3:.0f} ms",
        value=ratio,
        reach=str(MOST_RATIO),
        passed=MOST_RATIO.met(ratio) and same,
        spread=f"{min(ratios):.3f} to {max(ratios):.3f}",
        difference="" if same else "another reply",
        rounds={"session": cached, "fresh": fresh},
    )


def _text(engine: Engine) -> str:
    """Text of about ``TURN`` tokens."""
    lines: list[str] = []
    size = 0
    while size < TURN:
        line = f"Line {len(lines)}: the keeper wrote {len(lines) * 7} in the book of the tower."
        size += len(engine.tokenizer.encode(line + "\n", add_special_tokens=False))
        lines.append(line)
    return "\n".join(lines)


def _first_token(
    engine: Engine, messages: list[dict[str, str]], *, session: str | None
) -> tuple[float, list[int]]:
    run = engine.stream(messages, session=session, max_tokens=16)
    seconds = _seconds(lambda: next(run))
    return seconds, run.result().tokens


def _decode_seconds(
    engine: Engine, prompt: list[int], reply: int, options: dict[str, Any]
) -> float:
    """From the first token to the last, and to the end of the last write."""
    run = engine.stream(prompt, max_tokens=reply, eos_token_ids=(), **options)
    next(run)
    return _seconds(run.result)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def measured(model: str | None, rounds: int) -> Iterable[table.Outcome]:
    """Every row."""
    yield from write_times(rounds)
    yield from decode_shares(model, rounds)
    yield from second_turns(model, rounds)


def main() -> int:
    """Measure, print, and answer 1 when a row misses its reach."""
    blas.restart_with_openblas()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--model", help="a SmolLM2 folder; made when left out")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    warn_of_load()
    model = asked.model or str(real_model.ensure("fp32"))
    outcomes = list(measured(model, asked.rounds))
    table.show("Checkpoints and sessions", outcomes)
    if asked.json:
        table.save(asked.json, header(), outcomes)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
