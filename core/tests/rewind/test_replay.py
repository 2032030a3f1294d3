"""Which layer call is repeated to refill a cache entry, and with what."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache

from mlxfill import ModelError
from mlxfill.model.hooks import LayerCall, LayerTrace
from mlxfill.rewind.replay import TapedLayer, Window, cut, feeding_call

SIZE, KEEP = 5, 2


# --- what a layer was called with, cut to what stays -----------------------------------


def numbered(*shape: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    size = 1
    for axis in shape:
        size *= axis
    return mx.arange(size).reshape(shape).astype(dtype)


def same(ours: Any, theirs: Any) -> bool:
    return ours.shape == theirs.shape and bool(mx.array_equal(ours, theirs))


ARRAYS: dict[str, tuple[mx.array, Any]] = {
    "hidden states": (numbered(1, SIZE, 8), (slice(None), slice(KEEP))),
    "hidden states of two rows": (numbered(2, SIZE, 8), (slice(None), slice(KEEP))),
    "hidden states as wide as the window": (numbered(1, SIZE, SIZE), (slice(None), slice(KEEP))),
    "positions": (numbered(SIZE), slice(KEEP)),
    "positions of a row": (numbered(1, SIZE), (slice(None), slice(KEEP))),
    "positions of two rows": (numbered(2, SIZE), (slice(None), slice(KEEP))),
    "positions on three axes": (numbered(3, 1, SIZE), (..., slice(KEEP))),
    "a table by position": (numbered(SIZE, 3), slice(KEEP)),
    "a shorter table": (numbered(4, 3), ...),
    "a longer table": (numbered(SIZE + 2, 3), ...),
    "a number": (mx.array(7.0), ...),
    "other widths": (numbered(1, SIZE + 1, 8), ...),
    "other positions": (numbered(SIZE - 1), ...),
    "an image of four axes": (numbered(1, 2, 3, SIZE), ...),
    "a stack by position": (numbered(SIZE, 3, 2), ...),
    "a film of five axes": (numbered(1, 2, 3, 1, SIZE), ...),
    "which are padded": (numbered(2, SIZE, dtype=mx.bool_), (slice(None), slice(KEEP))),
    "which one is padded": (numbered(SIZE, dtype=mx.bool_), slice(KEEP)),
    "a causal mask": (numbered(SIZE, SIZE, dtype=mx.bool_), (slice(KEEP), slice(KEEP))),
    "a mask with a past": (
        numbered(SIZE, SIZE + 4, dtype=mx.bool_),
        (slice(KEEP), slice(KEEP + 4)),
    ),
    "a mask of rows": (
        numbered(2, 1, SIZE, SIZE + 1, dtype=mx.bool_),
        (..., slice(KEEP), slice(KEEP + 1)),
    ),
    "a mask of a shorter window": (numbered(3, SIZE + 4, dtype=mx.bool_), ...),
    "a mask of a longer window": (numbered(SIZE + 2, SIZE + 4, dtype=mx.bool_), ...),
    "a narrow mask": (numbered(SIZE, 3, dtype=mx.bool_), slice(KEEP)),
    "weights, no mask": (numbered(1, 1, SIZE, SIZE + 4), ...),
}


@pytest.mark.parametrize(("value", "kept"), ARRAYS.values(), ids=ARRAYS)
def test_the_axis_of_the_window_is_cut_and_no_other(value: mx.array, kept: Any) -> None:
    assert same(cut(value, KEEP, SIZE), value[kept])


@pytest.mark.parametrize("shape", [(SIZE, SIZE + 4), (1, 1, SIZE, SIZE + 4), (SIZE, SIZE)])
def test_a_mask_of_numbers_is_known_by_its_name(shape: tuple[int, ...]) -> None:
    value = numbered(*shape)
    past = shape[-1] - SIZE
    assert same(cut(value, KEEP, SIZE, mask=True), value[..., :KEEP, : KEEP + past])


def test_a_window_may_be_long() -> None:
    size = 300
    for shape, axis in (((1, size, 2), 1), ((size, 3), 0), ((size,), 0), ((3, 1, size), 2)):
        assert cut(mx.zeros(shape), 7, size).shape[axis] == 7
    assert cut(mx.zeros((size, size), mx.bool_), 7, size).shape == (7, 7)


def test_nothing_may_be_kept() -> None:
    assert cut(numbered(1, SIZE, 8), 0, SIZE).shape == (1, 0, 8)
    assert cut(numbered(SIZE, SIZE + 4), 0, SIZE, mask=True).shape == (0, 4)


def test_containers_are_cut_inside_and_stay_what_they_are() -> None:
    hidden, mask = numbered(1, SIZE, 8), numbered(SIZE, SIZE + 4)
    cos, sin = cut((hidden, hidden + 1), KEEP, SIZE)
    assert same(cos, hidden[:, :KEEP])
    assert same(sin, hidden[:, :KEEP] + 1)
    made = cut([[mask], None], KEEP, SIZE, mask=True)
    assert isinstance(made, list)
    assert same(made[0][0], mask[:KEEP, : KEEP + 4])
    assert made[1] is None
    assert isinstance(cut((hidden,), KEEP, SIZE), tuple)
    named = cut({"a": hidden, "b": "causal"}, KEEP, SIZE)
    assert named.keys() == {"a", "b"}
    assert same(named["a"], hidden[:, :KEEP])
    assert same(cut({"a": mask}, KEEP, SIZE, mask=True)["a"], mask[:KEEP, : KEEP + 4])
    shared = {"index": hidden, "scale": 0.5}
    narrowed = cut(shared, KEEP, SIZE)
    assert same(narrowed["index"], hidden[:, :KEEP])
    assert narrowed["scale"] == 0.5
    assert same(shared["index"], hidden)


@pytest.mark.parametrize("value", ["causal", None, 7, 0.5, KVCache()], ids=type)
def test_what_is_no_array_is_handed_on(value: Any) -> None:
    assert cut(value, KEEP, SIZE) is value
    assert cut(value, KEEP, SIZE, mask=True) is value


# --- which call ------------------------------------------------------------------------


def call(name: str, *args: Any, **kwargs: Any) -> LayerCall:
    return LayerCall(name, args, kwargs)


X = mx.zeros((1, SIZE, 4))


def test_the_one_block_that_takes_the_entry_is_called_not_its_layer() -> None:
    entry = KVCache()
    tape = LayerTrace([call("layer", X, entry), call("block", X, entry)])
    assert feeding_call(tape, entry).layer == "block"


def test_a_layer_that_has_no_block_is_called_itself() -> None:
    entry = KVCache()
    assert feeding_call(LayerTrace([call("layer", X, None, entry)]), entry).layer == "layer"


def test_a_layer_whose_blocks_share_the_entry_is_called_whole() -> None:
    entry = ArraysCache(2)
    tape = LayerTrace([call(name, X, cache=entry) for name in ("layer", "time", "channel")])
    assert feeding_call(tape, entry).layer == "layer"


@pytest.mark.parametrize(
    "given",
    [
        lambda entry: {"args": (X, entry)},
        lambda entry: {"kwargs": {"cache": entry}},
        lambda entry: {"args": (X, CacheList(KVCache(), entry))},
        lambda entry: {"kwargs": {"cache": [KVCache(), entry]}},
        lambda entry: {"args": (X, (entry, KVCache()))},
    ],
    ids=["positional", "by name", "in a composite", "in a list", "in a tuple"],
)
def test_an_entry_is_found_wherever_it_was_handed_over(given: Any) -> None:
    entry, other = KVCache(), KVCache()
    plain: dict[str, Any] = {"args": (), "kwargs": {}}
    calls = [
        LayerCall("before", (X, other), {}),
        LayerCall("found", **{**plain, **given(entry)}),
        LayerCall("after", (X, CacheList(KVCache(), other)), {"cache": [KVCache()]}),
    ]
    assert feeding_call(LayerTrace(calls), entry).layer == "found"


def test_a_composite_is_found_where_all_its_parts_were_handed_over() -> None:
    whole = CacheList(KVCache(), ArraysCache(1))
    first, second = whole.caches
    half, full = call("half", X, first), call("full", X, first, second)
    assert feeding_call(LayerTrace([half, full]), whole).layer == "full"
    with pytest.raises(ModelError):
        feeding_call(LayerTrace([half]), whole)


def test_entries_are_told_apart_by_identity() -> None:
    """Two of them may be equal, or not comparable at all."""

    class Alike(KVCache):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    alike: Any = Alike
    entry, other = alike(), alike()
    own = call("own", X, entry)
    for not_it in (call("other", X, other), call("list", X, [other])):
        assert feeding_call(LayerTrace([own, not_it]), entry).layer == "own"
        assert feeding_call(LayerTrace([not_it, own, own]), entry).layer == "own"
    whole = CacheList(entry, alike())
    own, not_it = call("own", X, *whole.caches), call("other", X, other, alike())
    assert feeding_call(LayerTrace([own, not_it]), whole).layer == "own"


@pytest.mark.parametrize("tape", [None, LayerTrace([]), LayerTrace([call("layer", X, KVCache())])])
def test_an_entry_that_no_layer_was_given_is_named(tape: LayerTrace | None) -> None:
    with pytest.raises(ModelError, match=r"^no decoder layer was called with this ArraysCache$"):
        feeding_call(tape, ArraysCache(1))


# --- repeating it ----------------------------------------------------------------------


def test_a_layer_is_called_again_on_what_it_was_given_cut_to_what_stays() -> None:
    heard: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    class Noting:
        def __call__(self, *args: Any, **kwargs: Any) -> None:
            heard.append((args, kwargs))

    entry, window = ArraysCache(1), Window()
    taped = TapedLayer(window, entry)
    assert taped.window() == 0
    hidden, mask, weights = numbered(1, SIZE, 8), numbered(SIZE, SIZE + 4), numbered(3, SIZE, 2)
    named = {"attention_mask": mask, "weights": weights, "cache": entry}
    window.size, window.tape = SIZE, LayerTrace([LayerCall(Noting(), (hidden, "causal"), named)])
    assert taped.window() == SIZE
    taped.replay(KEEP)
    (((first, second), kwargs),) = heard
    assert same(first, hidden[:, :KEEP])
    assert second == "causal"
    assert same(kwargs["attention_mask"], mask[:KEEP, : KEEP + 4])
    assert same(kwargs["weights"], weights[:, :KEEP])
    assert kwargs["cache"] is entry
    taped.replay(0)
    assert len(heard) == 1


def test_before_the_first_window_there_is_nothing_to_repeat() -> None:
    with pytest.raises(ModelError, match="no decoder layer"):
        TapedLayer(Window(), KVCache()).replay(0)
