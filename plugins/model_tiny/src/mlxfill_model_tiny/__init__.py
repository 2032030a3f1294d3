"""Tiny trained models for mlxfill, and asks to try them with.

The names ``tiny`` (hybrid target), ``tiny-draft`` (dense draft model), ``tiny-mtp``
(multi-token-prediction head) and ``tiny-dflash`` (block drafter) resolve to folders in this
package::

    engine = mlxfill.load("tiny")
    for ask in mlxfill_model_tiny.held_out_asks(5):
        reply = engine.generate(ask.messages, tools=ask.tools)
        print(ask.kind, mlxfill_model_tiny.judge(ask, reply.text))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxfill_model_tiny.asks import Ask, Verdict, held_out_asks, judge

__all__ = ["Ask", "Verdict", "held_out_asks", "judge"]


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562): every start of mlxfill imports this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mlxfill_model_tiny import asks

    return getattr(asks, name)
