"""Synthetic agent sessions, to replay: ``python -m mlxfill_model_tiny.sessions``."""

from __future__ import annotations

import argparse
import json
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from mlxfill_model_tiny.arguments import positive
from mlxfill_model_tiny.asks import trained_texts
from mlxfill_model_tiny.corpus import loops, transcript_of
from mlxfill_model_tiny.corpus.words import chance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill_model_tiny.corpus import Transcript

KINDS = {"edit": loops.edit, "grep": loops.grep, "shell": loops.shell, "api": loops.api}
THINKING = 0.25
"""Share of the sessions in which the assistant reasons before it answers."""


def sessions(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Sessions of the four kinds in turn: read and edit, search, shell, JSON interfaces.

    Everything in them is made up, the assistant's turns too: they are what the target should say,
    not what it said.  No sentence of a user stood in the training set.

    :returns: objects with ``id``, ``source``, ``template_options``, ``tools`` and ``messages``
        (the last two in OpenAI's format), the same for the same seed.
    """
    rng = Random(f"sessions {seed}")  # noqa: S311 - synthetic text, no secret
    kinds = islice(cycle(KINDS), count)
    return [
        {
            "id": f"{kind}-{number}",
            "source": f"synthetic: mlxfill_model_tiny.sessions, seed {seed}",
            "template_options": {"enable_thinking": transcript.thinking},
            "tools": transcript.tools,
            "messages": transcript.messages,
        }
        for number, kind in enumerate(kinds, 1)
        for transcript in (_held_out(rng, kind),)
    ]


def _held_out(rng: Random, kind: str) -> Transcript:
    """Draw until every sentence of the user is new."""
    while True:
        turns = KINDS[kind](rng)
        asked = {turn["content"] for turn in turns if turn["role"] == "user"}
        if not asked & trained_texts():
            return transcript_of(rng, turns, (kind,), thinking=chance(rng, THINKING))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a file, a session a line."""
    parser = argparse.ArgumentParser(
        prog="python -m mlxfill_model_tiny.sessions",
        description="Make synthetic agent sessions for the tiny model.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where to")
    parser.add_argument("--sessions", type=positive, default=16, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (%(default)s)")
    options = parser.parse_args(arguments)
    made = sessions(options.sessions, options.seed)
    lines = "".join(json.dumps(session, ensure_ascii=False) + "\n" for session in made)
    try:
        options.out.write_text(lines, encoding="utf-8")
    except OSError as error:
        parser.error(f"--out {options.out}: {error.strerror or error}")


if __name__ == "__main__":
    main()
