"""How much a source does for one token: lines of Python, counted, which no clock disturbs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill_testing.conformance.playing import Played


def count_steps(played: Played, token: Sequence[int]) -> int:
    """Lines that run while the source is asked and one token enters, after one such round.

    What C code does in one line (``list.index``) counts as one.
    """
    lines = 0

    def trace(*event: Any) -> Any:  # noqa: ANN401 - the interpreter's
        nonlocal lines
        lines += event[1] == "line"
        return trace

    def once() -> None:
        offer = played.ask()
        if offer is not None:
            played.settle(offer, 0)
        played.enter(token)

    once()  # what is indexed at first is not the next token's
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        once()
    finally:
        sys.settrace(before)
    return lines
