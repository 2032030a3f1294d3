"""Cache entries of a kind that nobody knows, what a plugin would bring for them, and a model."""

from __future__ import annotations

from typing import Any

from mlx_lm.models.cache import KVCache

from mlxfill_testing import tiny_model


class Diary(KVCache):
    """It cannot be trimmed, and something in it has no copy."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.book = object()

    def is_trimmable(self) -> bool:
        return False


class DiaryRewinder:
    """Takes it back; says nothing about replays."""

    def __init__(self, entry: Any, layer: Any) -> None:
        self.entry, self.layer = entry, layer

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def rewind(self, keep: int) -> None:
        self.entry.offset -= self.layer.window() - keep


def diary_model() -> Any:
    """A llama that makes such entries, for one test alone."""
    model = tiny_model("llama")
    model.make_cache = lambda: [Diary() for _ in model.layers]
    return model
