"""Measure what forced tokens save, and what holding a reply to its schema costs a token.

    python benchmarks/constrain.py [--model FOLDER] [--rounds 7] [--only NAME,NAME]

*Replies*: each schema decoded with forced tokens and without, in turn, every other round in
reverse order, greedily.  Times are whole requests, prefill included; a ratio is taken within a
round and the median over the rounds is shown.  Both sides must write the same ids.
*Costs*: the vocabulary, a schema that is new and one that is known, in ms; the mask of a token, in
us, its part on the host (grammar and bits) and its part on the device (applied to the logits).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

import mlxfill
from blas import loaded_blas, restart_with_openblas
from mlxfill_constrain import Vocabulary
from mlxfill_constrain.plugin import mlxfill_constraint
from real_model import ensure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

AIM = 0.75
QUICK: dict[str, Any] = {"max_tokens": 300, "temperature": 0.0}


def record(**properties: object) -> dict[str, Any]:
    """A closed object in which every property is required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text(length: int) -> dict[str, Any]:
    """A short string."""
    return {"type": "string", "maxLength": length}


WHOLE = {"type": "integer", "minimum": 0, "maximum": 999}
SCHEMAS: dict[str, tuple[str, dict[str, Any]]] = {
    "ticket": (
        "Our invoice page shows an error since Monday. Sort this ticket, as JSON.",
        record(
            category={"enum": ["billing", "shipping", "account", "other"]},
            priority={"enum": ["low", "normal", "high"]},
            sentiment={"enum": ["positive", "neutral", "negative"]},
            needs_human_review={"type": "boolean"},
            estimated_minutes=WHOLE,
            summary=text(40),
        ),
    ),
    "person": (
        "Anna Berg is 34, lives in Oslo, writes to anna@berg.example. As JSON.",
        record(
            first_name=text(20),
            last_name=text(20),
            age_in_years=WHOLE,
            address=record(street=text(20), city=text(20), country_code=text(2)),
            email_address=text(30),
            is_subscribed={"type": "boolean"},
        ),
    ),
    "list": (
        "Plan three steps to bake bread, as JSON.",
        record(
            steps={
                "type": "array",
                "minItems": 3,
                "maxItems": 3,
                "items": record(title=text(20), minutes=WHOLE, optional={"type": "boolean"}),
            }
        ),
    ),
    "call": (
        "Read the first 40 lines of src/app.py. Which tool, with which arguments? As JSON.",
        record(
            name={"const": "read_file"},
            arguments=record(path=text(30), first_line=WHOLE, last_line=WHOLE),
        ),
    ),
    "prose": ("Describe the sea, as JSON.", record(description=text(400))),
}


def engines(model: Path) -> dict[str, mlxfill.Engine]:
    """The arms, on models of their own."""
    return {
        name: mlxfill.load(
            model, plugins=["constrain"], config={"plugins": {"constrain": {"forced": forced}}}
        )
        for name, forced in (("off", False), ("on", True))
    }


def timed(
    engine: mlxfill.Engine, prompt: str, schema: Mapping[str, Any] | None
) -> tuple[float, mlxfill.Result]:
    """Milliseconds of one request, and its result."""
    started = time.perf_counter()
    result = engine.generate([{"role": "user", "content": prompt}], schema=schema, **QUICK)
    return (time.perf_counter() - started) * 1e3, result


def compare(arms: dict[str, mlxfill.Engine], name: str, rounds: int) -> str:
    """One row."""
    prompt, schema = SCHEMAS[name]
    for engine in arms.values():
        timed(engine, prompt, schema)
    ratios, took = [], dict[str, list[float]](on=[], off=[])
    for at in range(rounds):
        ran = {}
        for arm in ("on", "off") if at % 2 else ("off", "on"):
            ms, ran[arm] = timed(arms[arm], prompt, schema)
            took[arm].append(ms)
        ratios.append(took["on"][-1] / took["off"][-1])
    on, off = ran["on"], ran["off"]
    forced = on.stats.fill["injected"]
    same = "yes" if on.tokens == off.tokens else "NO"
    plain, quick = (statistics.median(took[arm]) for arm in ("off", "on"))
    return (
        f"| {name} | {len(on.tokens)} | {forced} | {off.stats.target_forwards}"
        f" | {on.stats.target_forwards} | {plain:.0f} | {quick:.0f}"
        f" | {statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} | {same} |"
    )


def best(call: Callable[[], object], times: int = 5) -> float:
    """Milliseconds of the quickest of several calls."""
    took = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        took.append((time.perf_counter() - started) * 1e3)
    return min(took)


def print_costs(engine: mlxfill.Engine) -> None:
    """What holding costs, apart from any model."""
    prompt, schema = SCHEMAS["person"]
    request = engine.stream(prompt, schema=schema).request
    eos, size = request.eos_ids, engine.target.vocab_size
    known = Vocabulary.of(engine.tokenizer, eos)
    unseen = [mlxfill.Schema("json", json.dumps(schema) + " " * n) for n in range(1, 6)]
    backend = engine.tokenizer.backend_tokenizer
    rows = {
        f"vocabulary of {size} ids, once a model": best(
            lambda: Vocabulary.of(Unknown(backend), eos), 2
        ),
        "schema, new": best(lambda: known.matcher(unseen.pop(), "spaced")),
        "schema, known": best(lambda: mlxfill_constraint(request, None)),
    }
    print("\n| | ms |\n|---|--:|")
    for what, ms in rows.items():
        print(f"| {what} | {ms:.3g} |")
    reply = engine.generate(prompt, schema=schema, **QUICK).tokens
    host, device = mask_costs(request, reply, size)
    print(
        f"\nmask, a token: {statistics.median(host):.0f} us on the host (worst {max(host):.0f}),"
        f" {statistics.median(device):.0f} us on the device"
    )


def mask_costs(
    request: mlxfill.Request, reply: Sequence[int], size: int
) -> tuple[list[float], list[float]]:
    """Microseconds of each mask of a reply, on the host and on the device."""
    constraint = mlxfill_constraint(request, None)
    if constraint is None:
        raise SystemExit("the request has no schema")
    logits, ids = mx.random.normal((1, size)), mx.array([*request.prompt_ids, *reply])
    mx.eval(logits)
    host, device = [], []
    for upto in range(len(request.prompt_ids), len(ids)):
        tokens = ids[:upto]
        mx.eval(tokens)
        started = time.perf_counter()
        masked = constraint.mask(tokens, logits)
        built = time.perf_counter()
        mx.eval(masked)
        host.append((built - started) * 1e6)
        device.append((time.perf_counter() - built) * 1e6)
    return host, device


class Unknown:
    """A tokenizer that nobody has seen."""

    def __init__(self, backend: object) -> None:
        self.backend_tokenizer = backend


def names(given: str) -> Sequence[str]:
    """Schemas of a comma-separated list."""
    chosen = given.split(",")
    for name in chosen:
        if name not in SCHEMAS:
            raise argparse.ArgumentTypeError(f"no schema {name!r}; there are {', '.join(SCHEMAS)}")
    return chosen


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="default: SmolLM2-135M in fp32, made if missing")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", type=names, default=list(SCHEMAS), metavar="NAME,NAME")
    given = parser.parse_args()
    arms = engines(given.model or ensure("fp32"))
    print(f"BLAS: {loaded_blas()}; aim: on / off at most {AIM}\n")
    columns = ("schema", "tokens", "forced", "forwards off", "on", "off ms", "on ms", "on / off")
    print("|", " | ".join((*columns, "spread", "same ids")), "|")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|---|")
    for name in given.only:
        print(compare(arms, name, given.rounds), flush=True)
    print_costs(arms["on"])


if __name__ == "__main__":
    restart_with_openblas()
    main()
