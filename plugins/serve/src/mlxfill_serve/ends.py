"""Where a reply may end, when a request says that: fields that vLLM's clients send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import frozen

from mlxfill_serve.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlxfill import Engine
    from mlxfill_serve.bodies import Asked


@frozen
class Ends:
    """``ids`` end a reply, as the model's own do without ``ignore_eos``, after ``least`` tokens."""

    ids: tuple[int, ...] = ()
    least: int = 0
    ignore_eos: bool = False

    def options(self, engine: Engine) -> dict[str, Any]:
        """Options of the engine.

        :raises ApiError: an id is beyond the vocabulary.
        """
        size = engine.target.vocab_size
        wrong = next((each for each in self.ids if each >= size), None)
        if wrong is not None:
            said = f"stop_token_ids must be below the vocabulary size {size}, not {wrong}"
            raise ApiError(400, said, param="stop_token_ids", code="invalid_value")
        return {"eos_token_ids": self._ending(engine)}

    def processors(self, engine: Engine, prompt: int) -> dict[str, Any]:
        """What keeps a reply to a prompt of so many tokens from ending too early."""
        ending = self._ending(engine)
        if not self.least or not ending:
            return {}
        held, ids = prompt + self.least, mx.array(ending)

        def not_yet(tokens: mx.array, logits: mx.array) -> mx.array:
            if tokens.size < held:
                logits[:, ids] = -mx.inf
            return logits

        return {"logits_processors": [not_yet]}

    def _ending(self, engine: Engine) -> list[int]:
        own = () if self.ignore_eos else engine.tokenizer.eos_token_ids
        return sorted({*own, *self.ids})


def ends_of(body: Asked, options: Mapping[str, Any]) -> Ends | None:
    """What a request says of the end of its replies, None for nothing.

    :raises ApiError: it cannot be had together with what else is asked.
    """
    least, most = body.min_tokens or 0, options.get("max_tokens", -1)
    if 0 <= most < least:
        said = f"min_tokens is {least} and max_tokens {most}: the one must not be above the other"
        raise ApiError(400, said, param="min_tokens", code="invalid_value")
    for name, wanted in (("min_tokens", least), ("ignore_eos", body.ignore_eos)):
        if wanted and options.get("schema") is not None:
            said = f"{name} cannot be had of a reply that is held to a format: leave one out"
            raise ApiError(400, said, param=name, code="unsupported_parameter")
    if not (least or body.ignore_eos or body.stop_token_ids):
        return None
    return Ends(tuple(body.stop_token_ids or ()), least, bool(body.ignore_eos))
