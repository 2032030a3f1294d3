"""A tiny trained model triple for mlxfill, and asks to try it with.

The names ``tiny`` (hybrid target), ``tiny-draft`` (dense draft model) and ``tiny-mtp``
(multi-token-prediction head) resolve to folders in this package::

    engine = mlxfill.load("tiny")
    for ask in mlxfill_model_tiny.held_out_asks(5):
        reply = engine.generate(ask.messages, tools=ask.tools)
        print(ask.kind, mlxfill_model_tiny.judge(ask, reply.text))
"""

from __future__ import annotations

from mlxfill_model_tiny.asks import Ask, Verdict, held_out_asks, judge

__all__ = ["Ask", "Verdict", "held_out_asks", "judge"]
