"""Stand-ins for the target's hidden states: a vector for every beginning of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

if TYPE_CHECKING:
    from collections.abc import Sequence

STATES = 257
_FACTOR = 1_000_003


class AuxStates:
    """``width`` numbers for each token of a session, made from all tokens up to it.

    Equal beginnings have equal states and others nearly never, as with a real target.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._states = mx.random.normal((STATES, max(width, 1)), key=mx.random.key(0))

    def of(self, sessions: Sequence[Sequence[int]], starts: Sequence[int]) -> mx.array | None:
        """States ``[B, S, width]`` of each session's tokens from its start on, S the longest's.

        None without aux layers; shorter rows end in zeros.
        """
        if not self.width:
            return None
        parts = [self._row(ids)[at:] for ids, at in zip(sessions, starts, strict=True)]
        size = max(len(part) for part in parts)
        rows = [[*part, *[-1] * (size - len(part))] for part in parts]
        index = mx.array(rows)
        return mx.where((index >= 0)[..., None], self._states[mx.maximum(index, 0)], 0.0)

    @staticmethod
    def _row(ids: Sequence[int]) -> list[int]:
        found, state = [], 1
        for token in ids:
            state = (state * _FACTOR + token + 1) % (1 << 61)
            found.append(state % STATES)
        return found
