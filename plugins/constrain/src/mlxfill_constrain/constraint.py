"""Holds one reply to its grammar: a mask over the logits, and proposals of what is forced."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import mlx.core as mx
import numpy as np

from mlxfill import InputError, Policy, Proposal
from mlxfill_constrain.reasoning import opened_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill import Request, TokenView
    from mlxfill_constrain.vocabulary import Vocabulary
    from mlxfill_constrain.walk import Walk

ORIGIN = "grammar"
SHORTEST = 2
"""A single forced id gains nothing over the mask, which leaves the model that one."""
FOLLOW = 0.125
OFTEN = 0.1


class GrammarConstraint:
    """The ``Constraint`` of one request.

    A reasoning block that the prompt left open may hold anything; the grammar begins after it.
    """

    def __init__(
        self, walk: Walk, vocabulary: Vocabulary, request: Request, *, forced: bool = True
    ) -> None:
        """:param forced: whether to propose what the grammar forces."""
        self._walk, self._forced = walk, forced
        self._eos = request.eos_ids
        self._never = np.array(sorted(vocabulary.eos - request.eos_ids), np.int64)
        self._ends = np.array(sorted(request.eos_ids), np.int64)
        self._prompt_length = len(request.prompt_ids)
        self._block_end = opened_block(request)
        self._reply: list[int] = []
        self._entered = 0
        # The grammar begins after so many ids of the reply; None: not yet.
        self._begin: int | None = None if self._block_end else 0
        self._rate = 1.0

    # --- as a mask --------------------------------------------------------------------

    def mask(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Leave ``logits`` ``[1, V]`` of what may follow ``tokens`` ``[L]``, prompt included."""
        self._follow(tokens)
        if self._reply and self._reply[-1] in self._eos:
            return logits
        if self._begin is None:
            return _ruled_out(logits, np.concatenate([self._ends, self._never]))
        forced = self._walk.next_forced
        if forced is not None and forced not in self._eos:
            return _only(logits, forced)
        return self._choice(logits)

    def _choice(self, logits: mx.array) -> mx.array:
        size = logits.shape[-1]
        allowed = np.zeros(size, np.bool_)
        known = self._walk.allowed()[:size]
        allowed[: len(known)] = known
        allowed[self._never] = False
        if self._walk.accepting:
            allowed[self._ends] = True
        if not allowed.any():
            if self._walk.finished:
                return logits  # nothing is to follow, and no id says so
            raise InputError(
                f"schema cannot be used with this model: after {self._walk.taken} tokens none of"
                " its vocabulary fits"
            )
        # What others ruled out stays possible where the schema leaves nothing else.
        floor = mx.maximum(logits, mx.finfo(logits.dtype).min)
        return mx.where(mx.array(allowed)[None], floor, -mx.inf)

    # --- as a source ------------------------------------------------------------------

    def propose(self, view: TokenView) -> Proposal | None:  # noqa: ARG002 - it knows the tokens
        """What the grammar forces."""
        if not self._forced or self._begin is None or self._entered != len(self._reply):
            return None
        ids = self._walk.forced
        found = len(ids) >= SHORTEST
        self._rate += FOLLOW * (found - self._rate)
        return Proposal(ids, Policy.ASSERT, ORIGIN) if found else None

    def near(self) -> bool:
        """Whether tokens are often followed by forced ones here."""
        return self._forced and self._begin is not None and self._rate > OFTEN

    def observe(self, ids: Sequence[int]) -> None:
        """Tokens entered; the mask may have followed some of them before."""
        ahead = len(self._reply) - self._entered
        self._entered += len(ids)
        for token in ids[max(ahead, 0) :]:
            self._take(token)

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        """Nothing to learn."""

    def complete(self) -> bool:
        """Whether only the end can follow."""
        return self._begin is not None and self._walk.finished

    # --- where the reply stands ---------------------------------------------------------

    def _follow(self, tokens: mx.array) -> None:
        """Be where ``tokens`` end: go on by those that are new, back from those that are gone."""
        length, known = tokens.shape[0] - self._prompt_length, len(self._reply)
        if length < known:
            self._back(known - length)
        elif length > known:
            for token in cast("list[int]", tokens[self._prompt_length + known :].tolist()):
                self._take(token)

    def _take(self, token: int) -> None:
        if self._begin is not None and token not in self._eos:
            self._walk.take(token)
        self._reply.append(token)
        end = self._block_end
        if self._begin is None and tuple(self._reply[-len(end) :]) == end:
            self._begin = len(self._reply)

    def _back(self, count: int) -> None:
        del self._reply[-count:]
        length = len(self._reply)
        if self._block_end and self._begin is not None and length < self._begin:
            self._begin = None
        kept = 0 if self._begin is None else length - self._begin
        self._walk.back(max(self._walk.taken - kept, 0))


def _only(logits: mx.array, token: int) -> mx.array:
    """All of the probability on one id, whatever the logits were."""
    ids = mx.arange(logits.shape[-1])
    return mx.where(ids == token, mx.array(0, logits.dtype), mx.array(-mx.inf, logits.dtype))[None]


def _ruled_out(logits: mx.array, ids: np.ndarray) -> mx.array:
    if not len(ids):
        return logits
    return mx.put_along_axis(logits, mx.array(ids)[None], mx.array(-mx.inf, logits.dtype), axis=-1)
