"""What a request cost, in OpenAI's fields and ours."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill import Stats


def usage(runs: Sequence[Stats], replies: int, reasoning_tokens: int = 0) -> dict[str, Any]:
    """The counts of all choices of a request, of which ``replies`` follow each prompt.

    ``fill`` and ``speculation`` are the engine's counters; ``tokens_per_second`` counts from the
    first token on.
    """
    prompts = runs[::replies]
    asked = sum(run.prompt_tokens for run in prompts)
    generated = sum(run.generated_tokens for run in runs)
    forwards = sum(run.target_forwards for run in runs)
    seconds = sum(run.decode_ms for run in runs) / 1e3
    spec = _added([run.spec for run in runs])
    return {
        "prompt_tokens": asked,
        "completion_tokens": generated,
        "total_tokens": asked + generated,
        "prompt_tokens_details": {"cached_tokens": sum(run.cached_tokens for run in prompts)},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "accepted_prediction_tokens": spec.get("accepted", 0),
            "rejected_prediction_tokens": spec.get("rejected", 0),
        },
        "fill": _added([run.fill for run in runs]),
        "speculation": spec,
        "tokens_per_forward": round(generated / max(forwards, 1), 3),
        "tokens_per_second": round(max(generated - len(runs), 0) / seconds, 1) if seconds else 0.0,
        "target_forwards": forwards,
        "prefill_ms": round(sum(run.prefill_ms for run in runs), 3),
        "decode_ms": round(sum(run.decode_ms for run in runs), 3),
        "seed": runs[0].seed,
    }


def _added(counters: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counters of several runs as one: numbers add up, lists follow each other.

    Lists by position add up position by position.
    """
    total: dict[str, Any] = {}
    for counts in counters:
        for name, value in counts.items():
            total[name] = _plus(name, total.get(name), value)
    return total


def _plus(name: str, held: Any, value: Any) -> Any:  # noqa: ANN401 - numbers, lists or objects of them
    if held is None:
        return value
    if isinstance(value, dict):
        return _added([held, value])
    if name.endswith("_by_position"):
        return [a + b for a, b in zip_longest(held, value, fillvalue=0)]
    return held + value if isinstance(value, int | float | list) else value
