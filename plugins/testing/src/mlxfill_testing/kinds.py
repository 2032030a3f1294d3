"""A tiny model for every kind of cache that mlx-lm has."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from mlxfill_testing.architectures import ROUNDED


@frozen
class CacheKind:
    """A model whose cache is of one kind.

    ``changes``: to the architecture's config; ``options``: what a request must say for it.
    ``exact``: whether windows give the logits of single steps bit by bit (CPU, fp32).
    """

    name: str
    architecture: str
    changes: dict[str, Any] = field(factory=dict)
    options: dict[str, Any] = field(factory=dict)

    @property
    def exact(self) -> bool:
        """Whether nothing is rounded in another order."""
        return self.architecture not in ROUNDED

    def model(self) -> Any:  # noqa: ANN401 - an mlx-lm model
        """The model, made once: bind it, do not change it."""
        from mlxfill_testing.models import shared_model

        return shared_model(self.architecture, **self.changes)


CACHE_KINDS = {
    kind.name: kind
    for kind in (
        CacheKind("trimmable", "llama"),
        CacheKind("hybrid", "qwen3_5"),
        CacheKind("rotating", "gemma3_text"),
        CacheKind(
            "quantized",
            "llama",
            {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32},
            {"kv_bits": 8, "kv_group_size": 32},
        ),
        CacheKind("composite", "falcon_h1"),
    )
}
"""Keys and values in place, recurrent states beside them, rings of 8, 8 bits, several in one."""
