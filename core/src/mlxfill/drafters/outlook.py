"""What the cost model expects of a drafter before it is loaded: from its method and its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from mlxfill.policy.cost import CostCurve
from mlxfill.policy.plan import Candidate, best_plan

if TYPE_CHECKING:
    from pathlib import Path

ASSUMED = CostCurve({1: 1.0, 2: 1.1, 4: 1.2, 8: 1.4, 16: 1.8}, fixed=True)
"""Where nothing was measured: a forward that mostly waits for its weights."""


@frozen
class Method:
    """What is published of a method.

    ``rate``: chance that a draft is right after those before it; ``drafts``: of a round;
    ``block``: they come of one forward.
    """

    rate: float
    drafts: int
    block: bool = False


METHODS = {
    "mtp": Method(0.85, 2),  # DeepSeek-V3 (2024), 5.4.3: 85 to 90 % of second tokens
    "qwen-mtp": Method(0.85, 2),
    "eagle3": Method(0.75, 5),  # EAGLE-3 (2025), figure 7: 70 to 80 % at each depth
    "speculators": Method(0.75, 5),
    "gemma4-assistant": Method(0.75, 4),
    "dflash": Method(0.82, 15, block=True),  # DFlash (arXiv 2602.06036): about 6 of 16 tokens
    "dspark": Method(0.82, 7, block=True),
    "model": Method(0.7, 3),  # Leviathan et al. (2023), table 3: 0.6 to 0.8
}
UNKNOWN = Method(0.5, 2)


def expected_speedup(key: str, size: int, target_size: int, curve: CostCurve = ASSUMED) -> float:
    """Tokens a plain step of the target that a drafter of ``size`` bytes promises.

    A forward takes as long as it takes to read its weights.  ``key``: of its ``FolderFormat``.
    """
    method = METHODS.get(key, UNKNOWN)
    forward = size / max(target_size, 1)
    each = forward / method.drafts if method.block else forward
    candidate = Candidate(limit=method.drafts, rate=lambda _: method.rate, draft_cost=each)
    return best_plan([candidate], curve).expected_speedup


def weights_bytes(folder: Path) -> int:
    """Bytes of the weights in a folder."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))
