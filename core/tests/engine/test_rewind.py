"""After a rewind the caches are what they would be had the refused tail never been forwarded.

The judge is a fresh cache that is fed the same tokens in the same pieces, and one that is fed
all of them at once.  Every array of every entry is compared, bit by bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ChunkedKVCache, KVCache, RotatingKVCache

from diaries import Diary, DiaryRewinder
from mlxfill import ModelError
from mlxfill.model.target import Target
from mlxfill.rewind.entries import flat
from mlxfill.rewind.window import CacheWindow, prove_rewind
from mlxfill_testing import (
    ARCHITECTURES,
    ROUNDED,
    ROUNDING,
    VOCAB,
    contents,
    differences,
    shared_model,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

IDS = [(i * 37 + 11) % VOCAB for i in range(64)]
SIZES = range(1, 7)
LAST = 5

each_architecture = pytest.mark.parametrize("name", ARCHITECTURES)


def fed(target: Target, cache: list[Any], *pieces: Sequence[int]) -> mx.array:
    """Logits ``[V]`` after the last of ``pieces``, each one forward."""
    logits = mx.zeros(0)
    for piece in pieces:
        if piece:
            logits = target.forward(mx.array([list(piece)]), cache)[0, -1]
            mx.eval(logits, [entry.state for entry in cache])
    return logits


def tried(window: CacheWindow, ids: Sequence[int], keep: int) -> None:
    """Forward a window and keep its first ``keep`` ids."""
    mx.eval(window.forward(mx.array([list(ids)])))
    window.rewind(keep)


def near(ours: list[Any], theirs: list[Any]) -> bool:
    """Whether two prompt caches hold the same up to rounding."""
    for a, b in zip(ours, theirs, strict=True):
        mine, other = contents(a), contents(b)
        assert mine.keys() == other.keys()
        for key, value in mine.items():
            if isinstance(value, mx.array):
                assert value.shape == other[key].shape
                if not mx.allclose(value, other[key], rtol=1e-4, atol=ROUNDING):
                    return False
            elif value != other[key]:
                return False
    return True


def gap(a: mx.array, b: mx.array) -> float:
    """The largest difference."""
    value: Any = mx.abs(a - b).max().item()
    return float(value)


def check(
    target: Target, make: Callable[[], list[Any]], case: tuple[int, int, int], *, exact: bool
) -> None:
    """One window and one rewind against a cache that never saw the tail.

    ``case``: tokens before the window, its size, how many of it stay.
    """
    context, size, keep = case
    ours, theirs = make(), make()
    prompt, window = IDS[:context], IDS[context : context + size]
    fed(target, ours, prompt)
    tried(CacheWindow(target, ours), window, keep)
    fed(target, theirs, prompt, window[:keep])
    found = differences(ours, theirs)
    alike = near(ours, theirs)
    after, never = fed(target, ours, [LAST]), fed(target, theirs, [LAST])
    assert alike, case
    assert gap(after, never) <= ROUNDING, case
    if exact:
        assert found == [], case
        assert mx.array_equal(after, never), case


def cases(contexts: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    for context in contexts:
        for size in SIZES:
            for keep in range(size + 1):
                yield context, size, keep


# --- every architecture ------------------------------------------------------------


def contexts(target: Target) -> tuple[int, ...]:
    """Before, at and after the wrap where there are rings or chunks, of 8 tokens."""
    wraps = any(isinstance(e, RotatingKVCache | ChunkedKVCache) for e in flat(target.new_cache()))
    return (0, 3, 8, 13) if wraps else (0, 5)


@each_architecture
def test_a_rewind_forgets_the_tail(name: str) -> None:
    with Target(shared_model(name)) as target:
        for context, size, keep in cases(contexts(target)):
            # One id alone is computed in another order there than as the first of several.
            exact = name not in ROUNDED or keep != 1 or size == 1
            check(target, target.new_cache, (context, size, keep), exact=exact)


@each_architecture
def test_a_rewind_is_what_one_fresh_prefill_gives(name: str) -> None:
    with Target(shared_model(name)) as target:
        for context, size, keep in cases(contexts(target)[1:]):
            ours, theirs = target.new_cache(), target.new_cache()
            fed(target, ours, IDS[:context])
            tried(CacheWindow(target, ours), IDS[context : context + size], keep)
            fed(target, theirs, IDS[: context + keep])
            mine, other = fed(target, ours, [LAST]), fed(target, theirs, [LAST])
            if name in ROUNDED:
                assert gap(mine, other) <= ROUNDING, (context, size, keep)
            else:
                assert mx.array_equal(mine, other), (context, size, keep)
                assert len(contents(ours[0])) == len(contents(theirs[0]))


@each_architecture
def test_windows_give_the_logits_of_single_steps(name: str) -> None:
    """What all exactness rests on, and which architectures round (``ROUNDED``)."""
    with Target(shared_model(name)) as target:
        largest = 0.0
        for context in (3, 7, 8, 9, 20):
            together, apart = target.new_cache(), target.new_cache()
            fed(target, together, IDS[:context])
            fed(target, apart, IDS[:context])
            window = IDS[context : context + 6]
            ours = target.forward(mx.array([window]), together)
            theirs = mx.stack([fed(target, apart, [token]) for token in window])[None]
            largest = max(largest, gap(ours, theirs))
        assert largest <= ROUNDING
        assert (largest > 0) == (name in ROUNDED)


@each_architecture
def test_many_rounds_in_a_row(name: str) -> None:
    """Windows of every size, each followed by a plain step, over a wrap and more."""
    with Target(shared_model(name)) as target:
        ours, theirs = target.new_cache(), target.new_cache()
        window = CacheWindow(target, ours)
        fed(target, ours, IDS[:5])
        fed(target, theirs, IDS[:5])
        at = 5
        for turn, size in enumerate((3, 1, 6, 2, 4, 5, 6, 3)):
            keep = (turn * 5 + 2) % (size + 1)
            refused = [(token + 1) % VOCAB for token in IDS[at + keep : at + size]]
            tried(window, [*IDS[at : at + keep], *refused], keep)
            fed(target, theirs, *([token] for token in IDS[at : at + keep]))
            at += keep
            mine, other = fed(target, ours, [IDS[at]]), fed(target, theirs, [IDS[at]])
            at += 1
            if name in ROUNDED:
                assert gap(mine, other) <= 2 * ROUNDING, turn
            else:
                assert mx.array_equal(mine, other), turn


@each_architecture
def test_a_whole_window_needs_no_rewind(name: str) -> None:
    with Target(shared_model(name)) as target:
        ours, theirs = target.new_cache(), target.new_cache()
        for cache in (ours, theirs):
            fed(target, cache, IDS[:7])
        window = CacheWindow(target, ours)
        mx.eval(window.forward(mx.array([IDS[7:12]])))
        window.commit()
        fed(target, theirs, IDS[7:12])
        assert differences(ours, theirs) == []


@each_architecture
def test_the_proof_at_bind_time_agrees(name: str) -> None:
    with Target(shared_model(name)) as target:
        assert prove_rewind(target) == ""


# --- max_kv_size: a ring that keeps its first four -----------------------------------


@pytest.mark.parametrize("ring", [6, 8, 12])
def test_a_ring_with_kept_beginning(ring: int) -> None:
    with Target(shared_model("qwen2")) as target:

        def make() -> list[Any]:
            return target.new_cache(max_kv_size=ring)

        assert all(isinstance(entry, RotatingKVCache) and entry.keep == 4 for entry in make())
        for context in (2, ring - 1, ring, ring + 1, 2 * ring + 3):
            for size in (1, 2, 4, 6):
                for keep in range(size + 1):
                    check(target, make, (context, size, keep), exact=keep != 1 or size == 1)


def test_a_ring_goes_on_rounding_nothing_else_over_many_rounds() -> None:
    with Target(shared_model("qwen2")) as target:
        ours, theirs = target.new_cache(max_kv_size=8), target.new_cache(max_kv_size=8)
        window = CacheWindow(target, ours)
        at = 0
        for size, keep in ((6, 4), (5, 2), (6, 0), (4, 3), (6, 5), (2, 0), (6, 2), (5, 5)):
            tried(window, IDS[at : at + size], keep)
            fed(target, theirs, IDS[at : at + keep])
            at += keep
            assert differences(ours, theirs) == [], (size, keep)


# --- quantized ----------------------------------------------------------------------


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("name", ["llama", "qwen3_5", "lfm2"])
def test_quantized_keys_and_values(name: str, bits: int) -> None:
    wide = {"num_attention_heads": 2, "num_key_value_heads": 1}
    wide |= {} if name == "lfm2" else {"head_dim": 32}
    with Target(shared_model(name, **wide)) as target:

        def quantized(cache: list[Any]) -> list[Any]:
            return [
                entry.to_quantized(group_size=32, bits=bits)
                if isinstance(entry, KVCache)
                else entry
                for entry in cache
            ]

        for size in (1, 3, 6):
            for keep in range(size + 1):
                ours, theirs = target.new_cache(), target.new_cache()
                fed(target, ours, IDS[:6])
                fed(target, theirs, IDS[:6])
                ours, theirs = quantized(ours), quantized(theirs)
                tried(CacheWindow(target, ours), IDS[6 : 6 + size], keep)
                fed(target, theirs, IDS[6 : 6 + keep])
                assert differences(ours, theirs) == [], (size, keep)
                assert mx.array_equal(fed(target, ours, [LAST]), fed(target, theirs, [LAST]))


def test_entries_that_are_replaced_between_windows_are_taken_back_all_the_same() -> None:
    """Quantization in mid-run puts other entries into the same list."""
    with Target(shared_model("llama", num_attention_heads=2, head_dim=32)) as target:
        ours, theirs = target.new_cache(), target.new_cache()
        window = CacheWindow(target, ours)
        fed(target, ours, IDS[:5])
        fed(target, theirs, IDS[:5])
        tried(window, IDS[5:9], 2)
        fed(target, theirs, IDS[5:7])
        for cache in (ours, theirs):
            cache[:] = [entry.to_quantized(group_size=32, bits=8) for entry in cache]
        tried(window, IDS[7:12], 1)
        fed(target, theirs, IDS[7:8])
        assert differences(ours, theirs) == []


# --- kinds that nobody knows ----------------------------------------------------------


class SparingRewinder(DiaryRewinder):
    """One that needs no layer to fill it again."""

    needs_replay = False


def diaries(target: Target) -> list[Any]:
    return [Diary() for _ in target.new_cache()]


def test_an_unknown_entry_is_named() -> None:
    with Target(shared_model("llama")) as target:
        window = CacheWindow(target, diaries(target))
        assert not window.supported
        assert window.unsupported == "Diary"
        with pytest.raises(ModelError, match="Diary cannot be taken back"):
            window.forward(mx.array([[1, 2]]))


def test_a_rewinder_made_elsewhere_is_used_for_an_unknown_entry() -> None:
    with Target(shared_model("llama")) as target:
        ours, theirs = diaries(target), target.new_cache()
        window = CacheWindow(target, ours, SparingRewinder)
        assert window.supported
        fed(target, ours, IDS[:4])
        tried(window, IDS[4:9], 2)
        fed(target, theirs, IDS[:4], IDS[4:6])
        assert mx.array_equal(fed(target, ours, [LAST]), fed(target, theirs, [LAST]))


@pytest.mark.parametrize("name", ["qwen3_5", "gemma3_text"])
def test_nothing_of_an_old_state_is_held_after_a_window(name: str) -> None:
    """A committed window lets go of the arrays that it would have gone back to."""
    with Target(shared_model(name)) as target:
        cache = target.new_cache()
        fed(target, cache, IDS[:9])
        window = CacheWindow(target, cache)
        mx.eval(window.forward(mx.array([IDS[9:13]])))
        old = [r for r in window._rewinders if getattr(r, "_saved", ())]
        assert old
        window.commit()
        assert [r for r in old if r._saved] == []


def test_a_cache_that_gives_less_back_than_asked_is_an_error() -> None:
    """mlx-lm's ``trim`` answers how much it took; a smaller answer must not pass unseen."""

    class Stingy(KVCache):
        def trim(self, n: int) -> int:
            self.offset -= n - 1
            return n - 1

    with Target(shared_model("llama")) as target:
        make: Any = Stingy
        cache = [make() for _ in target.new_cache()]
        fed(target, cache, IDS[:4])
        with pytest.raises(ModelError, match="Stingy did not give back 3 tokens"):
            tried(CacheWindow(target, cache), IDS[4:9], 2)
