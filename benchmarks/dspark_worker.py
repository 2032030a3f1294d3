"""Answers requests for mlx-dspark.  Runs inside the peer's own virtual environment.

One JSON object a line.  In: ``method`` (``lookup`` or ``greedy``), ``prompt`` (ids) and
``max_tokens``.  Out: ``ids`` without the end-of-turn token, ``seconds`` from the arrival of
the first id to that of the last, ``forwards`` of the target.  The first line out names the
version.

mlx-dspark's own figure (``GenResult.seconds``) includes the prefill, so tokens are timed as
they arrive instead: its ``on_round`` callback reports every round; the first token of a
lookup, which belongs to no round, has arrived when the first verification is called.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import mlx_dspark
from mlx_dspark.generate import eos_token_ids


class Arrivals:
    """When which number of tokens had arrived."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, float]] = []

    def note(self, committed: int) -> None:
        """``committed`` more tokens are known now."""
        before = self._marks[-1][0] if self._marks else 0
        self._marks.append((before + committed, time.perf_counter()))

    def on_round(self, *, committed: int, **_: object) -> None:
        """Take mlx-dspark's report of one round."""
        self.note(committed)

    def seconds(self, count: int) -> float:
        """Time from the first token to token number ``count``."""
        return next(at for total, at in self._marks if total >= count) - self._marks[0][1]


class FirstVerify:
    """The target, noting the first token when it is first asked to verify."""

    def __init__(self, target: Any, arrivals: Arrivals) -> None:  # noqa: ANN401
        self._target, self._arrivals, self._started = target, arrivals, False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._target, name)

    def verify(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Verify as the target does."""
        if not self._started:
            self._started = True
            self._arrivals.note(1)
        return self._target.verify(*arguments)


def answer(target: Any, tokenizer: Any, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Generate once.  Text is streamed, as the other contestants do."""
    arrivals = Arrivals()
    limit = request["max_tokens"]
    lookup = request["method"] == "lookup"
    result = (mlx_dspark.lookup_generate if lookup else mlx_dspark.greedy_generate)(
        FirstVerify(target, arrivals) if lookup else target,
        tokenizer,
        prompt_ids=request["prompt"],
        max_new_tokens=limit,
        on_text=lambda _: None,
        on_round=arrivals.on_round,
    )
    ends = eos_token_ids(tokenizer)
    # A round may go one token past the limit.
    ids = result.token_ids[:limit]
    ids = ids[: next((at for at, token in enumerate(ids) if token in ends), len(ids))]
    return {
        "ids": ids,
        "seconds": arrivals.seconds(len(ids)),
        "forwards": result.target_forwards,
    }


def main() -> None:
    """Load the folder named on the command line and serve until the input ends."""
    replies, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not mix in
    target, tokenizer = mlx_dspark.load_target(sys.argv[1])
    print(json.dumps({"version": mlx_dspark.__version__}), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(target, tokenizer, json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main()
