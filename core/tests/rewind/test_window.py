"""One window at a time over a whole prompt cache, and the proof that going back is exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, RotatingKVCache

from diaries import Diary, DiaryRewinder
from mlxfill import ModelError
from mlxfill.model.target import Target
from mlxfill.rewind.window import CacheWindow, prove_rewind
from mlxfill_testing import differences, shared_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROMPT = [11, 48, 21, 58, 31]


def row(*ids: int) -> mx.array:
    return mx.array([ids])


@pytest.fixture(params=["llama", "qwen3_5", "gemma3_text"], ids=["kv", "states", "rings"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with Target(shared_model(request.param)) as bound:
        yield bound


@pytest.fixture
def llama() -> Iterator[Target]:
    with Target(shared_model("llama")) as bound:
        yield bound


def fed(target: Target, *pieces: tuple[int, ...]) -> list[Any]:
    cache = target.new_cache()
    for piece in pieces:
        if piece:
            mx.eval(target.forward(row(*piece), cache))
    return cache


# --- windows -----------------------------------------------------------------------------


def test_a_window_answers_what_the_model_answers(target: Target) -> None:
    ours, theirs = fed(target, (7, 8)), fed(target, (7, 8))
    logits = CacheWindow(target, ours).forward(row(*PROMPT))
    assert mx.array_equal(logits, target.forward(row(*PROMPT), theirs))


@pytest.mark.parametrize("keep", range(5))
def test_what_stays_is_what_was_kept(target: Target, keep: int) -> None:
    ours = fed(target, (7, 8))
    window = CacheWindow(target, ours)
    for _ in range(2):  # the second window goes on where the first one was cut
        mx.eval(window.forward(row(1, 2, 3, 4)))
        window.rewind(keep)
    kept = (1, 2, 3, 4)[:keep]
    assert differences(ours, fed(target, (7, 8), kept, kept)) == []


def test_another_forward_may_run_inside_a_window(target: Target) -> None:
    ours = fed(target, (7, 8))
    window = CacheWindow(target, ours)
    shapes: list[tuple[int, ...]] = []

    def run(ids: mx.array) -> mx.array:
        shapes.append(ids.shape)
        return target.hidden(ids, ours)

    hidden = window.forward(row(1, 2, 3, 4), run)
    assert hidden.shape == (1, 4, target.hidden_size)
    window.rewind(2)
    assert shapes == [(1, 4)]
    assert differences(ours, fed(target, (7, 8), (1, 2))) == []


def test_a_forward_may_be_run_and_taped_elsewhere(target: Target) -> None:
    ours = fed(target, (7, 8))
    window = CacheWindow(target, ours)
    window.begin(4)
    with target.taping() as tape:
        mx.eval(target.forward(row(1, 2, 3, 4), ours))
    window.taped(tape)
    window.rewind(3)
    assert differences(ours, fed(target, (7, 8), (1, 2, 3))) == []


def test_layers_are_watched_only_where_one_must_be_repeated() -> None:
    """A tape keeps the hidden states of all layers alive."""
    watched = {}
    for name in ("llama", "gemma3_text", "qwen3_5"):
        with Target(shared_model(name)) as target:
            window = CacheWindow(target, target.new_cache())
            assert window.supported
            assert window.unsupported == ""
            window.forward(row(1, 2))
            watched[name] = window._window.tape is not None
    assert watched == {"llama": False, "gemma3_text": False, "qwen3_5": True}


@pytest.mark.parametrize("keep", [1, 3])
def test_a_window_that_ended_holds_no_hidden_states(keep: int) -> None:
    with Target(shared_model("qwen3_5")) as target:
        window = CacheWindow(target, target.new_cache())
        mx.eval(window.forward(row(1, 2, 3)))
        window.rewind(keep)
        with pytest.raises(ModelError, match="no decoder layer"):
            window._rewinders[0].layer.replay(1)


# --- entries that others bring ---------------------------------------------------------------


class Replaying(DiaryRewinder):
    """One that has the layer fill all of the entry again."""

    def rewind(self, keep: int) -> None:
        super().rewind(0)
        if keep:
            self.layer.replay(keep)


def none(_entry: object, _layer: object) -> None:
    """No plugin knows it."""


def diaries(target: Target) -> list[Any]:
    return [KVCache(), *(Diary() for _ in target.new_cache()[1:])]


@pytest.mark.parametrize("make", [DiaryRewinder, Replaying])
def test_a_rewinder_that_does_not_say_what_it_needs_can_replay(llama: Target, make: Any) -> None:
    ours = diaries(llama)
    window = CacheWindow(llama, ours, make)
    mx.eval(window.forward(row(*PROMPT)))
    window.rewind(3)
    theirs = fed(llama, tuple(PROMPT[:3]))
    last = row(9)
    assert mx.array_equal(llama.forward(last, ours), llama.forward(last, theirs))


@pytest.mark.parametrize("make", [None, none])
def test_what_cannot_be_taken_back_is_named_before_anything_is_forwarded(
    llama: Target, make: Callable[..., None] | None
) -> None:
    cache = diaries(llama)
    window = CacheWindow(llama, cache, make)
    assert not window.supported
    with pytest.raises(ModelError, match=r"^a Diary cannot be taken back$"):
        window.forward(row(1, 2))
    assert [entry.offset for entry in cache] == [0] * 4


def test_plugins_are_asked_for_what_mlx_lm_does_not_have(llama: Target) -> None:
    asked: list[object] = []

    def make(entry: object, layer: Any) -> Any:
        asked.append(entry)
        return DiaryRewinder(entry, layer)

    cache = diaries(llama)
    assert CacheWindow(llama, cache, make).supported
    assert asked == cache[1:]


def test_entries_that_are_replaced_get_rewinders_of_their_own(llama: Target) -> None:
    """Quantization in mid-run puts others into the list, one or all."""
    cache = fed(llama, (7, 8))
    window = CacheWindow(llama, cache)
    cache[2] = RotatingKVCache(16)
    cache[2].update_and_fetch(*(a[..., :2, :] for a in (cache[1].keys, cache[1].values)))
    mx.eval(window.forward(row(1, 2, 3)))
    window.rewind(1)
    assert [entry.offset for entry in cache] == [3] * 4
    cache[3] = diaries(llama)[1]
    with pytest.raises(ModelError, match="a Diary cannot"):
        window.begin(2)
    cache[3] = KVCache()
    window.begin(2)
    assert window.supported


def test_entries_that_stay_keep_their_rewinders(llama: Target) -> None:
    made: list[Any] = []

    def make(entry: object, layer: Any) -> Any:
        made.append(entry)
        return DiaryRewinder(entry, layer)

    window = CacheWindow(llama, diaries(llama), make)
    for _ in range(3):
        mx.eval(window.forward(row(1, 2)))
        window.commit()
    assert len(made) == 3


def test_entries_are_told_apart_by_identity(llama: Target) -> None:
    """Equal ones need not be the same."""

    class Alike(KVCache):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    make: Any = Alike
    cache = [make() for _ in llama.new_cache()]
    window = CacheWindow(llama, cache)
    mx.eval(window.forward(row(1, 2)))
    window.commit()
    cache[1] = make()
    mx.eval(window.forward(row(3, 4, 5)))
    window.rewind(1)
    assert [entry.offset for entry in cache] == [3, 1, 3, 3]


def test_a_list_of_another_length_is_no_cache_of_this_window(llama: Target) -> None:
    cache = llama.new_cache()
    window = CacheWindow(llama, cache)
    cache.append(KVCache())
    with pytest.raises(ValueError, match="longer"):
        window.begin(2)


@pytest.mark.parametrize(("size", "keep"), [*((4, keep) for keep in range(5)), (300, 300)])
def test_a_rewinder_hears_how_every_window_ended(llama: Target, size: int, keep: int) -> None:
    """Begin, then commit or rewind, once each: what it keeps for a way back can go."""
    heard: list[str] = []

    class Noting(DiaryRewinder):
        def begin(self) -> None:
            heard.append("begin")

        def commit(self) -> None:
            heard.append("commit")

        def rewind(self, keep: int) -> None:
            heard.append(f"rewind {keep}")
            super().rewind(keep)

    window = CacheWindow(llama, diaries(llama), Noting)
    mx.eval(window.forward(mx.ones((1, size), mx.int32)))
    window.rewind(keep)
    ended = "commit" if keep == size else f"rewind {keep}"
    assert heard == ["begin"] * 3 + [ended] * 3


# --- the proof ------------------------------------------------------------------------------


def test_an_exact_rewind_is_proven(target: Target) -> None:
    assert prove_rewind(target) == ""


class Foreign(Target):
    """A target whose caches are diaries."""

    def new_cache(self, max_kv_size: int | None = None) -> list[Any]:  # noqa: ARG002
        return [Diary() for _ in super().new_cache()]


@pytest.fixture
def foreign() -> Iterator[Target]:
    with Foreign(shared_model("llama")) as bound:
        yield bound


def test_rewinders_of_others_are_proven_too(foreign: Target) -> None:
    for make in (DiaryRewinder, Replaying):
        assert prove_rewind(foreign, make) == ""


class Forgetful(DiaryRewinder):
    def rewind(self, keep: int) -> None: ...


class OneTooMany(DiaryRewinder):
    def rewind(self, keep: int) -> None:
        super().rewind(keep - 1)


class OneTooFew(DiaryRewinder):
    def rewind(self, keep: int) -> None:
        super().rewind(keep + 1)


class Rounding(DiaryRewinder):
    """Changes what was there before by a part in a thousand."""

    def rewind(self, keep: int) -> None:
        super().rewind(keep)
        self.entry.values = self.entry.values * 1.001


class LosingThePast(DiaryRewinder):
    """Takes the window back well and spoils what stood before it."""

    def rewind(self, keep: int) -> None:
        past = self.entry.offset - self.layer.window()
        self.entry.values[..., :past, :] = 0.0
        super().rewind(keep)


class Raising(DiaryRewinder):
    def rewind(self, keep: int) -> None:
        message = f"not {keep}"
        raise ValueError(message)


@pytest.mark.parametrize("make", [Forgetful, OneTooMany, OneTooFew, Rounding, LosingThePast])
def test_a_rewind_that_is_off_is_not_proven(foreign: Target, make: Any) -> None:
    reason = prove_rewind(foreign, make)
    assert reason.startswith("logits differ by ")
    assert reason.endswith(" after a rewind")
    assert 0 < float(reason.split()[3]) < 10


def test_the_proof_says_why_there_is_none(foreign: Target) -> None:
    assert prove_rewind(foreign) == "its Diary has no rewinder"
    assert prove_rewind(foreign, none) == "its Diary has no rewinder"
    assert prove_rewind(foreign, Raising) == "ValueError: not 1"


class Noisy(Foreign):
    """A target whose logits are zeros, and some units in the last place more at each other time."""

    units = 0.0
    turn = False

    def forward(self, ids: mx.array, cache: list[Any], embeddings: mx.array | None = None) -> Any:
        logits = super().forward(ids, cache, embeddings)
        self.turn = not self.turn
        return logits * 0 + self.turn * self.units * mx.finfo(logits.dtype).eps


@pytest.mark.parametrize(("units", "proven"), [(16, True), (16.5, False)])
def test_rounding_is_allowed_up_to_sixteen_units(*, units: float, proven: bool) -> None:
    with Noisy(shared_model("llama")) as target:
        target.units = units
        assert (prove_rewind(target, DiaryRewinder) == "") is proven
