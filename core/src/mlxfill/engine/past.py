"""What a resumed run has behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill.engine.counters import Counters

if TYPE_CHECKING:
    from mlxfill.engine.course import Emitted, Ending
    from mlxfill.engine.run import Run


@frozen
class Past:
    """The reply so far, and what it had cost.

    ``ending``: None while there is more to come.  ``logprobs`` and ``tops``: one a token, where
    they were asked for.  ``tally``: counters and times.
    """

    tokens: Sequence[Emitted]
    ending: Ending | None
    logprobs: Sequence[float]
    tops: Sequence[list[tuple[int, float]]]
    tally: Mapping[str, Any]

    def give_back(self, run: Run) -> None:
        """Let ``run``, which has computed nothing yet, stand where the stored one stood."""
        tally, stats = self.tally, run.stats
        run.session.add([emitted.token for emitted in self.tokens])
        run.session.counts.update(tally["offers"])
        run.reply.logprobs, run.reply.tops = list(self.logprobs), list(self.tops)
        run.loop.counters = Counters.from_dict(tally["counters"])
        run.forwarder.forwards = tally["forwards"]
        stats.cached_tokens = tally["cached_tokens"]
        stats.prefill_ms, stats.decode_ms = tally["prefill_ms"], tally["decode_ms"]
        if run.drafting is not None and tally["drafting"] is not None:
            run.drafting.recall(tally["drafting"])
