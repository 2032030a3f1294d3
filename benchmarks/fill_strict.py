"""Measure what fill-strict injects into the tiny model's tool calls, and what it costs.

    python benchmarks/fill_strict.py [--asks 120] [--rounds 3]

*Replies*: asks that the model never saw, decoded plainly, with asserts and with offers that the
model verifies, one after the other, several rounds; the gate is off.  Times are those of
decoding, the best of the rounds for each ask, summed.
*Compile*: ten tools, the best of several, in ms of this thread's own time; with the tokenizer of
Qwen3 where the tests have left one.  *Per token*: a token that fires nothing, in us.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attrs import define, field

import mlxfill
from blas import loaded_blas, restart_with_openblas
from mlxfill.chat.prompt import make_prompt
from mlxfill.tool_calls.rendering import render
from mlxfill_fill_strict import StrictSettings, compiled_rows
from mlxfill_fill_strict.compiler import compile_rows
from mlxfill_fill_strict.plugin import mlxfill_proposal_sources
from mlxfill_model_tiny import Ask, held_out_asks, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

REAL = Path(__file__).parents[1] / ".cache" / "tokenizers" / "qwen3"
INJECTED = {"template", "schema"}
QUICK: dict[str, Any] = {"temperature": 0.0, "template_options": {"enable_thinking": False}}
STEPS = 20_000


@define
class Tally:
    """Sums over the asks of one kind."""

    asks: int = 0
    tokens: int = 0
    injected: int = 0
    equal: dict[str, int] = field(factory=lambda: defaultdict(int))
    forwards: dict[str, int] = field(factory=lambda: defaultdict(int))
    decode_ms: dict[str, float] = field(factory=lambda: defaultdict(float))


def engines() -> dict[str, mlxfill.Engine]:
    """The arms: no plugin, asserts, offers."""
    gate = {"gate": {"enabled": False}}
    verify = {**gate, "plugins": {"fill-strict": {"policy": "verify"}}}
    return {
        "plain": mlxfill.load("tiny", plugins=[], config=gate),
        "assert": mlxfill.load("tiny", plugins=["fill-strict"], config=gate),
        "verify": mlxfill.load("tiny", plugins=["fill-strict"], config=verify),
    }


def replies(asks: Sequence[Ask], rounds: int) -> dict[str, Tally]:
    """Decode every ask in every arm; only well-formed plain replies count."""
    arms, tallies = engines(), defaultdict[str, Tally](Tally)
    for ask in asks:
        results: dict[str, list[mlxfill.Result]] = defaultdict(list)
        for _ in range(rounds):
            for name, engine in arms.items():
                results[name].append(engine.generate(ask.messages, tools=ask.tools, **QUICK))
        if judge(ask, results["plain"][0].text).well_formed:
            count(tallies[_kind(ask)], results)
            count(tallies["any arguments"], results)
    return tallies


def _kind(ask: Ask) -> str:
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in ask.tools}
    return "one argument" if len(schemas[ask.tool]["properties"]) == 1 else "several arguments"


def count(tally: Tally, results: Mapping[str, Sequence[mlxfill.Result]]) -> None:
    """Add one ask."""
    expected, filled = results["plain"][0], results["assert"][0]
    tally.asks += 1
    tally.tokens += len(filled.tokens)
    tally.injected += sum(origin in INJECTED for origin in filled.origins)
    for name, found in results.items():
        tally.equal[name] += found[0].tokens == expected.tokens
        tally.forwards[name] += found[0].stats.target_forwards
        tally.decode_ms[name] += min(result.stats.decode_ms for result in found)


def best(call: Callable[[], object], times: int = 7) -> float:
    """Milliseconds of this thread's own time that the quickest of several calls took."""
    took = []
    for _ in range(times):
        start = time.thread_time()
        call()
        took.append((time.thread_time() - start) * 1e3)
    return min(took)


def request(tokenizer: Any, tools: Sequence[Mapping[str, Any]]) -> mlxfill.Request:  # noqa: ANN401
    """A request as the engine makes it."""
    messages = [{"role": "user", "content": "What now?"}]
    prompt = make_prompt(tokenizer, messages, tools, {})

    def rendered(messages: Any, tools: Any = None, **options: Any) -> str:  # noqa: ANN401
        return render(tokenizer, messages, tools, options)

    return mlxfill.Request(
        prompt_ids=prompt.ids,
        prompt_text=prompt.text,
        messages=prompt.messages,
        tools=tuple(tools),
        sampling=mlxfill.Sampling(),
        limits=mlxfill.Limits(512),
        tokenizer=tokenizer,
        render=rendered,
        eos_ids=frozenset(tokenizer.eos_token_ids),
    )


def ten_tools(*keys: str, closed: bool) -> list[dict[str, Any]]:
    """Ten tools with the same text arguments."""
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {key: {"type": "string", "description": "What it says."} for key in keys},
        "required": list(keys),
    }
    parameters |= {"additionalProperties": False} if closed else {}
    verbs = ["read", "write", "list", "find", "move", "copy", "open", "close", "send", "make"]
    return [
        {"type": "function", "function": {"name": f"{verb}_file", "parameters": parameters}}
        for verb in verbs
    ]


def per_token(asked: mlxfill.Request) -> float:
    """Microseconds that a token costs that fires nothing."""
    source = cast("Any", mlxfill_proposal_sources(asked, StrictSettings()))[0]
    ids = asked.tokenizer.encode("Some words that call nothing. ", add_special_tokens=False)
    steps = [(token,) for token in ids] * (STEPS // len(ids))

    def feed() -> None:
        for step in steps:
            source.observe(step)
            source.propose(None)
            source.near()

    return best(feed) * 1e3 / len(steps)


def main() -> None:
    """Print three tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--asks", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(f"BLAS: {loaded_blas()}\n")
    print_costs()
    print_replies(replies(held_out_asks(given.asks), given.rounds))


def print_costs() -> None:
    """Compile times and the cost of a token."""
    from mlx_lm.tokenizer_utils import load

    folders = {"qwen3": REAL} if (REAL / "tokenizer.json").exists() else {}
    with mlxfill.load("tiny", plugins=[]) as engine:
        tokenizers = {"tiny": engine.tokenizer, **{n: load(path) for n, path in folders.items()}}
    print("| tokenizer | ten tools with | compile ms | again ms | per token us |")
    print("|---|---|--:|--:|--:|")
    for name, tokenizer in tokenizers.items():
        for label, keys, closed in (
            ("one argument, closed", ["path"], True),
            ("three arguments, closed", ["path", "text", "mode"], True),
            ("three arguments, open", ["path", "text", "mode"], False),
        ):
            asked = request(tokenizer, ten_tools(*keys, closed=closed))
            compiling = best(lambda asked=asked: compile_rows(asked))  # type: ignore[misc]
            again = best(lambda asked=asked: compiled_rows(asked))  # type: ignore[misc]
            token = per_token(asked)
            print(f"| {name} | {label} | {compiling:.1f} | {again:.3f} | {token:.2f} |")


def print_replies(tallies: Mapping[str, Tally]) -> None:
    """Shares, forwards and times against plain decoding."""
    print("\n| calls with | asks | injected | same reply (assert, verify) | forwards | time |")
    print("|---|--:|--:|--:|--:|--:|")
    for kind, tally in sorted(tallies.items(), key=lambda item: item[1].asks):
        equal = f"{tally.equal['assert']}, {tally.equal['verify']}"
        forwards = tally.forwards["assert"] / tally.forwards["plain"]
        took = tally.decode_ms["assert"] / tally.decode_ms["plain"]
        share = tally.injected / tally.tokens
        print(f"| {kind} | {tally.asks} | {share:.0%} | {equal} | x{forwards:.2f} | x{took:.2f} |")


if __name__ == "__main__":
    restart_with_openblas()
    main()
