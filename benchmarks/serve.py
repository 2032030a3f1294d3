"""Measure the server against the engine alone and against mlx-lm's server; print the table.

    python benchmarks/serve.py [--rounds N] [--tokens N] [--only ROW,ROW] [--json FILE]

* ``stream``: tokens per second of one stream of SmolLM2 from ``mlxfill serve``, prompt included,
  against ``Engine.stream`` in this process.
* ``added``: milliseconds that the server adds to a streamed token, with the model ``tiny``, whose
  tokens take about one: anything that the server does shows.
* ``agents``: eight agents with tools ask the model ``tiny``, turn after turn (the recorded
  sessions of mlxfill-bench): requests per second, fill-strict + fill-echo + spec-ngram against
  ``mlx_lm.server``, both just started and greeted once with each agent's tools.

Every round runs both sides, in turns; a ratio is taken inside each round.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import blas
import prompts
import real_model
import table
from decode import header, warn_of_load
from duels import Reach
from servers import Server, mlx_lm_server, mlxfill_serve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from mlxfill_bench import Session

AGENTS = 8
GREETING = [{"role": "user", "content": "Hi."}]
SOURCES = "fill-strict,fill-echo,spec-ngram"
STREAM, ADDED, COMPLETED = (
    Reach("at least", 0.97),
    Reach("at most", 0.3, "ms"),
    Reach("at least", 1.5),
)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--only", default="stream,added,agents")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    blas.restart_with_openblas()
    rows = options.only.split(",")
    facts = header(rounds=options.rounds, tokens=options.tokens)
    warn_of_load()
    outcomes = []
    if "stream" in rows:
        outcomes.append(one_stream(options.rounds, options.tokens))
    if "added" in rows:
        outcomes.append(added(2 * options.rounds, 3 * options.tokens))
    if "agents" in rows:
        outcomes.append(agents(options.rounds))
    table.show(f"mlxfill serve ({', '.join(f'{k} {v}' for k, v in facts.items())})", outcomes)
    if options.json:
        table.save(options.json, facts, outcomes)
    sys.exit(any(not outcome.passed for outcome in outcomes))


# --- one stream ---------------------------------------------------------------------------


@dataclass
class Timed:
    """Seconds and tokens of a run."""

    seconds: float
    tokens: int

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def one_stream(rounds: int, tokens: int) -> table.Outcome:
    """Rate of the server by rate of the engine."""
    server, engine = _sides(real_model.ensure("fp32"), prompts.FREE_STORY, rounds, tokens)
    ratios = [a.rate / b.rate for a, b in zip(server, engine, strict=True)]
    return _outcome("stream", "one stream, SmolLM2", server, engine, ratios, STREAM)


def added(rounds: int, tokens: int) -> table.Outcome:
    """Milliseconds a token more than the engine."""
    server, engine = _sides("tiny", "Tell a long story.", rounds, tokens)
    more = [1e3 * (a.seconds - b.seconds) / a.tokens for a, b in zip(server, engine, strict=True)]
    return _outcome("added", "added to a streamed token, tiny", server, engine, more, ADDED)


def _sides(
    model: Path | str, question: str, rounds: int, tokens: int
) -> tuple[list[Timed], list[Timed]]:
    """Runs of the server and of the engine on one question, greedy, as long as asked for."""
    import mlxfill

    messages = [{"role": "user", "content": question}]
    with (
        mlxfill.load(model, plugins=[], config={}) as engine,
        # Both read the prompt each time.
        mlxfill_serve(model, "--no-plugins", CACHE__EVERY_REQUEST="false") as server,
    ):
        ends = dict.fromkeys(engine.tokenizer.eos_token_ids, -1e9)
        options: dict[str, Any] = {"max_tokens": tokens, "logit_bias": ends, "temperature": 0}
        body = {"messages": messages, **options, "logit_bias": {str(e): b for e, b in ends.items()}}
        sides: dict[str, Callable[[], int]] = {
            "server": lambda: sum(b'"usage"' not in c for c in server.stream(body)) - 2,
            "engine": lambda: sum(p.token is not None for p in engine.stream(messages, **options)),
        }
        runs = _in_turns(sides, rounds)
    return runs["server"], runs["engine"]


def _in_turns(sides: dict[str, Callable[[], int]], rounds: int) -> dict[str, list[Timed]]:
    """Both sides in each round, who goes first alternating; one more round before to warm up."""
    runs: dict[str, list[Timed]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in list(sides) if number % 2 else list(sides)[::-1]:
            begun = time.perf_counter()
            count = sides[name]()
            runs[name].append(Timed(time.perf_counter() - begun, count))
        rates = ", ".join(f"{name} {each[-1].rate:.1f}/s" for name, each in runs.items())
        print(f"{number}/{rounds}: {rates}", file=sys.stderr, flush=True)
    return {name: each[1:] for name, each in runs.items()}


# --- agents -------------------------------------------------------------------------------

Work = list[list[dict[str, Any]]]
"""For each agent the requests that it makes, one after the other."""


def agents(rounds: int) -> table.Outcome:
    """Requests per second of ours by theirs.  Every round has agents and servers of its own."""
    from mlxfill.config import load_config
    from mlxfill.plugins import PluginManager

    folder = PluginManager.load(load_config({})).resolve_model("tiny")
    if folder is None:
        raise SystemExit("the model tiny is missing: pip install ./plugins/model_tiny")
    starts: dict[str, Callable[[], AbstractContextManager[Server]]] = {
        "ours": lambda: mlxfill_serve(folder, "--plugins", SOURCES),
        "theirs": lambda: mlx_lm_server(folder),
    }
    runs: dict[str, list[Timed]] = {name: [] for name in starts}
    for number, work in zip(range(rounds), itertools.cycle(sessions()), strict=False):
        for name in list(starts) if number % 2 else list(starts)[::-1]:
            with starts[name]() as server:
                for requests in work:  # no agent brings tools that its server never saw
                    server.ask({**requests[0], "messages": GREETING, "max_tokens": 5})
                begun = time.perf_counter()
                count = _work(server, work)
                runs[name].append(Timed(time.perf_counter() - begun, count))
        rates = ", ".join(f"{name} {each[-1].rate:.1f}/s" for name, each in runs.items())
        print(f"{number + 1}/{rounds}: {rates}", file=sys.stderr, flush=True)
    ratios = [a.rate / b.rate for a, b in zip(runs["ours"], runs["theirs"], strict=True)]
    what = f"{AGENTS} agents with tools, requests/s"
    return _outcome(
        "agents", what, runs["ours"], runs["theirs"], ratios, COMPLETED, "mlx_lm.server"
    )


def sessions() -> list[Work]:
    """The agent sessions that come with mlxfill-bench, as many at once as there are agents."""
    import mlxfill_bench

    recorded = mlxfill_bench.read_sessions(mlxfill_bench.SHIPPED)
    # Of each kind of session some in every set.
    sets = len(recorded) // AGENTS
    return [[_requests(session) for session in recorded[at::sets]] for at in range(sets)]


def _requests(session: Session) -> list[dict[str, Any]]:
    """Every turn of a session, asked after the history as it was recorded."""
    return [
        {
            "messages": _openai([dict(m) for m in turn.history if not isinstance(m, str)]),
            "tools": [dict(tool) for tool in session.tools or ()],
            "max_tokens": 400,
            "temperature": 0,
        }
        for turn in session.turns()
    ]


def _openai(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as OpenAI's clients send them."""
    import json

    made = []
    for message in messages:
        changed = dict(message)
        if "tool_calls" in changed:
            changed["tool_calls"] = [
                {
                    "id": f"call_{number}",
                    "type": "function",
                    "function": {
                        "name": call["function"]["name"],
                        "arguments": json.dumps(call["function"]["arguments"]),
                    },
                }
                for number, call in enumerate(changed["tool_calls"])
            ]
        if changed["role"] == "tool":
            changed["tool_call_id"] = "call_0"
        made.append(changed)
    return made


def _work(server: Server, work: Work) -> int:
    """Let all agents do their work at once; how many requests were answered."""

    def go(requests: Sequence[dict[str, Any]]) -> int:
        return sum(_answered(server, body) for body in requests)

    with ThreadPoolExecutor(len(work)) as pool:
        return sum(pool.map(go, work))


def _answered(server: Server, body: dict[str, Any]) -> bool:
    """Whether a stream was read to its end."""
    return any(b'"finish_reason":' in chunk for chunk in list(server.stream(body)))


def _outcome(  # noqa: PLR0913, PLR0917 - a row of a table
    key: str,
    what: str,
    ours: Sequence[Timed],
    theirs: Sequence[Timed],
    values: Sequence[float],
    reach: Reach,
    against: str = "engine",
) -> table.Outcome:
    value = statistics.median(values)
    rates = {"ours": [run.rate for run in ours], "theirs": [run.rate for run in theirs]}
    return table.Outcome(
        key=key,
        what=what,
        ours=f"server {statistics.median(rates['ours']):.1f}/s",
        theirs=f"{against} {statistics.median(rates['theirs']):.1f}/s",
        value=value,
        reach=str(reach),
        passed=reach.met(value),
        spread=f"{min(values):.2f} to {max(values):.2f}",
        rounds=rates,
    )


if __name__ == "__main__":
    main()
