"""A ring that several ids see further than one cannot be told by trying a few ids."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import CacheList, KVCache, RotatingKVCache

from mlxfill.model.target import Target
from mlxfill.rewind.rings import wider_than_ring
from mlxfill.rewind.window import prove_rewind
from mlxfill_testing import shared_model


class Asking:
    """A model that asks each entry of its cache for a mask, some of a width of their own."""

    def __init__(self, *asked: tuple[Any, dict[str, Any]], named: bool = True) -> None:
        self.asked, self.named = asked, named
        self.masks: list[Any] = []

    def new_cache(self) -> list[Any]:
        return [entry for entry, _ in self.asked]

    def forward(self, ids: mx.array, cache: list[Any]) -> None:
        for whole, (_, how) in zip(cache, self.asked, strict=True):
            for entry in getattr(whole, "caches", [whole]):
                positional = () if self.named else tuple(how.values())
                named = how if self.named else {}
                self.masks.append(entry.make_mask(ids.shape[1], *positional, **named))


def said(*asked: tuple[Any, dict[str, Any]], named: bool = True) -> str:
    target: Any = Asking(*asked, named=named)
    return wider_than_ring(target)


@pytest.mark.parametrize("how", [{}, {"window_size": None}, {"window_size": 8}, {"window_size": 3}])
def test_a_window_no_wider_than_its_ring_is_well(how: dict[str, Any]) -> None:
    assert said((RotatingKVCache(8), how)) == ""


@pytest.mark.parametrize("named", [True, False])
def test_a_wider_one_is_named(*, named: bool) -> None:
    asked = (RotatingKVCache(8), {"window_size": 9})
    assert said(asked, named=named) == (
        "ids forwarded together see 9 tokens, one alone sees the 8 of its ring"
    )


def test_any_ring_counts_and_the_first_is_named() -> None:
    wide, wider = {"window_size": 20}, {"window_size": 30}
    found = said((RotatingKVCache(8), {}), (RotatingKVCache(6), wide), (RotatingKVCache(7), wider))
    assert found == "ids forwarded together see 20 tokens, one alone sees the 6 of its ring"
    assert "see 20 tokens" in said((CacheList(RotatingKVCache(8), RotatingKVCache(8)), wide))


def test_only_rings_count() -> None:
    assert (
        said((KVCache(), {"window_size": 20, "return_array": False}), (RotatingKVCache(8), {}))
        == ""
    )


def test_the_model_gets_the_masks_that_it_asked_for() -> None:
    ways: list[dict[str, Any]] = [
        {},
        {"window_size": 4, "return_array": True},
        {"window_size": 20, "return_array": True},
    ]
    target: Any = Asking(*[(RotatingKVCache(8), how) for how in ways])
    wider_than_ring(target)
    for mask, how in zip(target.masks, ways, strict=True):
        expected: Any = RotatingKVCache(8).make_mask(2, **how)
        assert type(mask) is type(expected)
        assert mx.array_equal(mask, expected) if isinstance(mask, mx.array) else mask == expected


def test_of_a_model_whose_rings_are_too_narrow_no_rewind_is_proven() -> None:
    class Narrow(Target):
        """Rings of half the width that the model's masks have."""

        def new_cache(self, max_kv_size: int | None = None) -> list[Any]:
            cache = super().new_cache(max_kv_size)
            return [RotatingKVCache(4) if isinstance(e, RotatingKVCache) else e for e in cache]

    with Target(shared_model("gemma3_text")) as target:
        assert prove_rewind(target) == ""
    with Narrow(shared_model("gemma3_text")) as narrow:
        assert prove_rewind(narrow) == (
            "ids forwarded together see 8 tokens, one alone sees the 4 of its ring"
        )
