"""Answers requests for mlx-vlm with an MTP head or a block drafter, in the peers' environment.

One JSON object a line.  In: ``method`` (the kind of drafter, or ``greedy``), ``prompt`` (ids),
``max_tokens``.  Out: ``ids`` without the end-of-turn token, ``seconds`` from the first id to that
of the last, ``forwards`` of the target after the prompt.  The first line names the version.

Arguments: the folders of target and drafter.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_vlm.generate import generate_step
from mlx_vlm.utils import load_model

PLAIN = "greedy"


def answer(
    target: Any,  # noqa: ANN401
    head: Any,  # noqa: ANN401
    ends: set[int],
    request: dict[str, Any],
) -> dict[str, Any]:
    """Generate once, greedily."""
    drafting = {}
    if request["method"] != PLAIN:
        drafting = {"draft_model": head, "draft_kind": request["method"]}
        drafting["draft_block_size"] = head.config.block_size
        head.accept_lens = []
    ids: list[int] = []
    first = last = 0.0
    limit, prompt = request["max_tokens"], mx.array([request["prompt"]])
    steps = generate_step(prompt, target, None, None, max_tokens=limit, temperature=0.0, **drafting)
    for token, _ in steps:
        now = time.perf_counter()
        if int(token) in ends:
            break
        first, last = first or now, now
        ids.append(int(token))
    forwards = len(head.accept_lens) if drafting else len(ids)
    return {"ids": ids, "seconds": last - first, "forwards": forwards}


def main() -> None:
    """Load the folders named on the command line and serve until the input ends."""
    replies, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not mix in
    folder = Path(sys.argv[1])
    target, head = load_model(folder), load_model(Path(sys.argv[2]))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    ends = {*config["eos_token_id"]}
    print(json.dumps({"version": version("mlx-vlm")}), file=replies, flush=True)
    for line in sys.stdin:
        reply = answer(target, head, ends, json.loads(line))
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
