"""What an engine finds out about its model: each thing once, when it is first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill.model.fingerprint import fingerprint
from mlxfill.policy.acceptance import AcceptanceStats
from mlxfill.policy.budget import SpeculationBudget
from mlxfill.policy.calibration import curve_for, estimated_cost, store
from mlxfill.policy.cost import CostCurve
from mlxfill.policy.drafter import most_drafts
from mlxfill.rewind.window import prove_rewind
from mlxfill.rows.proof import Readings, prove_readings, prove_rows

if TYPE_CHECKING:
    from mlxfill.model.reading import Stream
    from mlxfill.model.target import Target
    from mlxfill.model.team import RankGroup
    from mlxfill.policy.drafter import Drafter
    from mlxfill.rewind.window import MakeRewinder


SHORT = 16
"""A reply of at most so many tokens saves fewer forwards than measuring a cost curve takes."""


class ModelProfile:
    """Tried, not assumed; measured, not guessed.

    ``budget`` and ``acceptance_of`` carry over what earlier requests showed.
    """

    def __init__(
        self,
        target: Target,
        team: RankGroup,
        make_rewinder: MakeRewinder,
        *,
        gated: bool,
        curve: CostCurve | None = None,
    ) -> None:
        """``gated``: whether costs decide anything; ``curve``: a known one, which is not kept."""
        self.budget = SpeculationBudget()
        self._target, self._team, self._make_rewinder = target, team, make_rewinder
        self._gated, self._curve = gated, curve
        # A team's curve holds for this start only: it is measured again, together.
        self._kept = curve is not None or team.size > 1
        self._acceptance: dict[tuple[str, str], AcceptanceStats] = {}
        self._no_rewind: str | None = None
        self._no_rows: str | None = None
        self._readings = Readings.NONE
        self._fingerprints: dict[str | None, str] = {}

    def no_rewind(self) -> str:
        """Why caches of this model cannot be taken back; "" when they can."""
        if self._no_rewind is None:
            self._no_rewind = prove_rewind(self._target, self._make_rewinder)
        return self._no_rewind

    def no_rows(self) -> str:
        """Why requests cannot share forwards of this model; "" when they can."""
        if self._no_rows is None:
            self._no_rows = prove_rows(self._target)
            self._readings = Readings.NONE if self._no_rows else prove_readings(self._target)
        return self._no_rows

    def readings(self) -> Readings:
        """Which prompts may be read in one forward, where requests can share them."""
        self.no_rows()
        return self._readings

    def fingerprint(self, adapter: str | None) -> str:
        """A hash of the model's weights, those of ``adapter`` among them."""
        if adapter not in self._fingerprints:
            adapters = self._target.adapters
            active = adapters.active  # a request may be on its way under it
            adapters.switch(adapter)
            try:
                self._fingerprints[adapter] = fingerprint(self._target.model)
            finally:
                adapters.switch(active)
        return self._fingerprints[adapter]

    def acceptance_of(self, plugin: str, source: object) -> AcceptanceStats:
        """How often sources of this plugin and class were right."""
        # The class may be anyone's: its own idea of a name is not asked.
        return self._acceptance.setdefault((plugin, type.__repr__(type(source))), AcceptanceStats())

    # --- costs ----------------------------------------------------------------------------

    @property
    def knows_costs(self) -> bool:
        """Whether a cost curve is at hand, or none is needed."""
        return self._curve is not None or not self._gated

    def worth_measuring(self, tokens: int) -> bool:
        """Whether a reply of at most ``tokens`` can win back what measuring the costs takes."""
        return self.knows_costs or tokens > SHORT

    def curve(self) -> CostCurve:
        """The cost curve, from the disk where it was measured before."""
        if self._curve is None:
            self._curve = curve_for(self._target, self._team) if self._gated else CostCurve.free()
        return self._curve

    def time_drafts(self, drafter: Drafter, most: int | None, stream: Stream) -> None:
        """Measure what a draft costs when up to ``most`` are made at once, on ``stream``."""
        depth = most_drafts(drafter.provider, most)
        if drafter.cost is None and depth:
            curve = self.curve() if self._gated else None
            drafter.cost = estimated_cost(
                self._target, drafter.provider, depth, stream, curve, self._team.clock
            )

    def keep(self) -> None:
        """Leave the curve, refined by what requests took, on the disk.  Safe to call twice."""
        if self._curve is not None and not self._kept and self._gated:
            store(self._target, self._curve)
            self._kept = True
