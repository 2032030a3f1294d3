"""Processes that share one model: what makes all of them take the same decisions.

Every rank holds a slice of the weights (tensor parallelism, as ``model.shard`` of mlx-lm cuts
them; Shoeybi et al.: "Megatron-LM", 2019) and runs the same loop.  Their forwards meet in
collectives, so two ranks that decide differently would wait for each other for ever.  What a
decision may depend on is therefore the same everywhere: tokens, seed and clock are rank 0's.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx

from mlxfill.errors import InputError, reason
from mlxfill.sampling import Chooser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill.model.reading import Stream
    from mlxfill.sampling import Sampler, Sampling

LAUNCHED = ("MLX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""What ``mlx.launch`` and ``mpirun`` put into the environment of each process."""


def launched() -> mx.distributed.Group | None:
    """The group that this process was started in; None when it runs alone.

    :raises InputError: it was started as one of a group that cannot be joined.
    """
    if not any(name in os.environ for name in LAUNCHED):
        return None
    try:
        group = mx.distributed.init()
    except RuntimeError as error:
        raise InputError(
            f"the group that this process was started in cannot be joined ({reason(error)}): start"
            " at least two processes with mlx.launch, or this one without it"
        ) from error
    return group if group.size() > 1 else None


class RankGroup:
    """The ranks of a group.  A team of one shares with nobody, at no cost."""

    def __init__(
        self, group: mx.distributed.Group | None = None, stream: Stream | None = None
    ) -> None:
        """``stream``: where the model computes; collectives must not overtake each other."""
        self._group, self._stream = group, stream or mx.default_device()
        self.size = 1 if group is None else group.size()
        self.rank = 0 if group is None else group.rank()

    def share(self, ids: mx.array) -> mx.array:
        """Rank 0's integers in place of each rank's own, same shape and dtype, lazily."""
        if self._group is None:
            return ids
        return mx.distributed.all_sum(ids * (self.rank == 0), group=self._group)

    def share_number(self, number: int) -> int:
        """Rank 0's 63-bit number; waits for it."""
        return self._sum(number if self.rank == 0 else 0)

    def clock(self) -> float:
        """``time.perf_counter`` of rank 0."""
        if self._group is None:
            return time.perf_counter()
        return self.share_number(time.perf_counter_ns()) * 1e-9

    def check_same(self, what: str, *facts: object) -> None:
        """Raise ``InputError`` on every rank when some rank's ``facts`` are not rank 0's.

        :param facts: compared by what ``repr`` says of them.
        """
        if self._group is None:
            return
        mine = int.from_bytes(hashlib.sha256(repr(facts).encode()).digest()[:7], "big")
        others = self._sum(int(mine != self.share_number(mine)))
        if others:
            error = InputError(
                f"{others} of {self.size} ranks have another {what} than rank 0: "
                "start all of them with the same arguments, files and versions"
            )
            error.on_every_rank = True
            raise error

    def _sum(self, number: int) -> int:
        if self._group is None:
            return number
        with mx.stream(self._stream):
            total = mx.distributed.all_sum(mx.array([number], mx.int64), group=self._group)
            return cast("int", total.item())


class SharedChooser(Chooser):
    """Chooses what rank 0 chooses: replicated sums may differ in their last bits."""

    def __init__(self, team: RankGroup, sampling: Sampling, sampler: Sampler | None = None) -> None:
        """``sampling`` must carry the team's seed."""
        super().__init__(sampling, sampler)
        self._team = team

    def choose(self, logprobs: mx.array, positions: Sequence[int]) -> mx.array:
        """``[n, V]`` log-probabilities at ``n`` absolute positions to ``[n]`` ids, lazily."""
        return self._team.share(super().choose(logprobs, positions))

    def draw(self, logits: mx.array, positions: Sequence[int]) -> mx.array:
        """The same from raw logits: what drafters are handed as ``DraftSampling``."""
        drawn = super().draw(logits, positions)
        return self._team.share(drawn) if self.greedy else drawn

    def evolved(self, **changes: Any) -> SharedChooser:  # noqa: ANN401 - fields of Sampling
        """A chooser with the same seed and keys and other values; never a foreign sampler."""
        return SharedChooser(self._team, super().evolved(**changes).sampling)
