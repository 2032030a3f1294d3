"""What an audit found, as an answer tells it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill import Audit

MOST = 256
"""Proposed tokens that are told one by one."""
COUNTED = ("proposed", "agreed", "entered")


def audit_told(found: Audit, decode: Callable[[list[int]], str]) -> dict[str, Any]:
    """JSON-ready: as ``mlxfill audit --json``, with counts, and with the first ``MOST`` tokens.

    :param decode: text of ids.
    """
    whole = found.as_dict(decode)
    counts: Counter[tuple[str, str, str]] = Counter()
    for each in found.proposed:
        kind = each.origin, str(each.policy)
        counts[(*kind, "proposed")] += 1
        counts[(*kind, "agreed")] += each.agrees
        counts[(*kind, "entered")] += each.entered
    kinds = dict.fromkeys((origin, policy) for origin, policy, _ in counts)
    return {
        "identical": whole["identical"],
        "difference": whole["difference"],
        "noise": whole["noise"],
        "caches": whole["caches"],
        "counts": [
            {
                "origin": origin,
                "policy": policy,
                **{what: counts[origin, policy, what] for what in COUNTED},
            }
            for origin, policy in kinds
        ],
        "proposed": whole["proposed"][:MOST],
        "left_out": max(len(found.proposed) - MOST, 0),
    }
