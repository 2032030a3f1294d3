"""The check of a rewinder for a kind of cache entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import define, frozen

from mlxfill.errors import ModelError
from mlxfill.model.target import Target
from mlxfill.rewind.entries import builtin_rewinder
from mlxfill.rewind.replay import TapedLayer, Window
from mlxfill.testing.caches import contents
from mlxfill.testing.conformance.breach import Breach, ConformanceError, blamed, said_of, shortest
from mlxfill.testing.conformance.playing import short
from mlxfill.testing.conformance.report import Conformance
from mlxfill.testing.kinds import CACHE_KINDS
from mlxfill.testing.models import ROUNDING, VOCAB
from mlxfill.testing.needed import needed
from mlxfill.testing.tokenizer import tiny_tokenizer

if TYPE_CHECKING:
    from mlxfill.contracts import CacheRewinder, LayerReplay

    Factory = Callable[[object, LayerReplay, Target], CacheRewinder | None]
    Told = Callable[[str], Breach]

METHODS = ("begin", "commit", "rewind")
LARGEST = 5
"""Ids of a window."""


@frozen
class Windows:
    """A prompt, then windows: of each its size and how many of its ids stay; size 1 is a step."""

    prompt: int
    windows: tuple[tuple[int, int], ...]


def check_rewinder(
    factory: Factory,
    *,
    name: str = "rewinder",
    model: Any = None,  # noqa: ANN401 - an mlx-lm model
    examples: int = 25,
) -> Conformance:
    """Run everything that a rewinder must stand on the entries that ``factory`` takes.

    After any windows, kept whole, in part or not at all, with single steps between them, every
    entry holds what it would hold had the refused ids never been forwarded, and so say the next
    logits; begin, commit and rewind are called in any legal order.  A rewinder whose
    ``needs_replay`` is false finds nothing to replay, as in an engine.

    :param factory: the plugin's hook ``mlxfill_cache_rewinder``: entry, layer and target to a
        rewinder, or None for an entry that it does not know.
    :param name: the plugin's name in messages.
    :param model: an mlx-lm model whose prompt cache has the entries; by default the kit's models
        of every kind of cache, and the factory must take one of their entries.
    :param examples: stories to try on each model.
    :returns: how many windows were taken back.
    :raises ConformanceError: one line that says what was wrong and after which windows.
    """
    __tracebackhide__ = True
    models = [kind.model() for kind in CACHE_KINDS.values()] if model is None else [model]
    report = Conformance(name)
    for each in models:
        with Target(each, tiny_tokenizer()) as target:
            battery = _Battery(factory, target)
            with said_of(name):
                battery.learn()
            if battery.taken:
                shortest(name, stories(), partial(battery.play, report=report), examples)
    if not report.stories:
        entries = "its entries" if model is not None else "any entry of mlx-lm's kinds"
        raise ConformanceError(
            f"{name}: the factory takes none of {entries}: hand over the model that it is for"
        )
    return report


def stories() -> Any:  # noqa: ANN401 - a hypothesis strategy
    """Up to six windows after a prompt of up to twelve ids."""
    st = needed("hypothesis.strategies")

    window = st.integers(1, LARGEST).flatmap(
        lambda size: st.tuples(st.just(size), st.integers(1 if size == 1 else 0, size))
    )
    return st.builds(
        Windows, st.integers(1, 12), st.lists(window, min_size=1, max_size=6).map(tuple)
    )


@define
class _Battery:
    factory: Factory
    target: Target
    taken: bool = False
    exact: bool = True

    def learn(self) -> None:
        """Whether the factory takes an entry, and whether windows of this model are exact."""
        cache = self.target.new_cache()
        for entry in cache:
            if self._seat(entry) is not None:
                self.taken = True
        ids = [(at * 37 + 11) % VOCAB for at in range(20)]
        whole = self.target.forward(mx.array([ids]), self.target.new_cache())[0, -1]
        step = self.forwarded(self.target.new_cache(), [[token] for token in ids])
        self.exact = bool(mx.array_equal(whole, step))

    def forwarded(self, cache: list[Any], pieces: Sequence[Sequence[int]]) -> mx.array:
        """Logits ``[V]`` after the last piece."""
        logits = mx.zeros(0)
        for piece in pieces:
            logits = self.target.forward(mx.array([list(piece)]), cache)[0, -1]
            mx.eval(logits, [entry.state for entry in cache])
        return logits

    def play(self, story: Windows, report: Conformance) -> None:
        """The windows of a story, each against a cache that never saw what was refused."""
        ids = iter([(at * 29 + 7) % VOCAB for at in range(64)])
        prompt = [next(ids) for _ in range(story.prompt)]
        ours, pieces, log = self.target.new_cache(), [prompt], [f"after {story.prompt} tokens"]

        def told(said: str) -> Breach:
            size = story.prompt + sum(size for size, _ in story.windows) + 9 * len(log)
            return Breach(f"{', '.join(log)} the rewinder {said}", size)

        with blamed(told, "the factory"):
            self.forwarded(ours, pieces)
            seats = [self._required(entry) for entry in ours]
        for size, keep in story.windows:
            chosen = [next(ids, 3) for _ in range(size)]
            if size == 1:
                log.append("a single step")
                self.forwarded(ours, [chosen])
                pieces.append(chosen)
            else:
                log.append(f"a window of {size} ids of which {keep} stay")
                self._forward(ours, seats, chosen, told)
                _finish(seats, size, keep, told)
                with blamed(told, "what it left in the cache"):
                    mx.eval([entry.state for entry in ours])
                report.offers += keep < size
                report.accepted += keep
                if keep:
                    pieces.append(chosen[:keep])
            self._compare(ours, pieces, told)
        report.stories += 1

    def _forward(self, cache: list[Any], seats: list[_Seat], ids: list[int], told: Told) -> None:
        for seat in seats:
            seat.window.size = len(ids)
            with blamed(told, "begin()"):
                seat.rewinder.begin()
        with self.target.taping() as tape:
            mx.eval(self.target.forward(mx.array([ids]), cache))
        for seat in seats:
            seat.window.tape = tape if seat.taped else None

    def _compare(self, ours: list[Any], pieces: list[list[int]], told: Told) -> None:
        """What the entries hold against entries that were fed the kept pieces only."""
        theirs = self.target.new_cache()
        self.forwarded(theirs, pieces)
        for at, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            with blamed(told, "what it left in the cache"):
                a, b = contents(mine), contents(other)
            wrong = [key for key in sorted(a.keys() | b.keys()) if not self._near(a, b, key)]
            if wrong:
                raise told(
                    f"left {type(mine).__name__} number {at} with other {' and '.join(wrong)}"
                    " than a cache that never saw the refused ids"
                )

    def _near(self, a: dict[str, Any], b: dict[str, Any], key: str) -> bool:
        mine, other = a.get(key), b.get(key)
        if not isinstance(mine, mx.array) or not isinstance(other, mx.array):
            return mine is other or (type(mine) is type(other) and bool(mine == other))
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return False
        if self.exact:
            return bool(mx.array_equal(mine, other))
        return bool(mx.allclose(mine, other, rtol=1e-4, atol=ROUNDING))

    def _seat(self, entry: Any) -> _Seat | None:  # noqa: ANN401
        def told(said: str) -> Breach:
            return Breach(f"for a {type(entry).__name__} the factory {said}")

        window = Window()
        with blamed(told, "making the rewinder"):
            made: Any = self.factory(entry, _Layer(window, entry), self.target)
        if made is None:
            return None
        for method in METHODS:
            if not callable(getattr(made, method, None)):
                raise told(f"answered {short(made)}, which has no {method}()")
        taped = getattr(made, "needs_replay", True)
        if type(taped) is not bool:
            raise told(f"answered a rewinder of needs_replay {short(taped)}, not bool")
        return _Seat(made, window, taped)

    def _required(self, entry: Any) -> _Seat:  # noqa: ANN401
        """A rewinder of the plugin, or the core's own for what the plugin leaves to it."""
        if seat := self._seat(entry):
            return seat
        window = Window()
        found = builtin_rewinder(entry, TapedLayer(window, entry))
        if found is None:
            raise Breach(f"the factory takes no {type(entry).__name__}, and neither does the core")
        return _Seat(found, window, taped=True)


class _Layer(TapedLayer):
    """A layer that says why there is nothing to replay."""

    def replay(self, keep: int) -> None:
        """Call the layer again, unless the rewinder said that it never does that."""
        if self._window.tape is None:
            raise ModelError("nothing to replay: needs_replay is false, or no window is open")
        super().replay(keep)


@frozen
class _Seat:
    """A rewinder, the windows that it hears of, and whether they are taped for it."""

    rewinder: CacheRewinder
    window: Window
    taped: bool


def _finish(seats: list[_Seat], size: int, keep: int, told: Told) -> None:
    """The outcome of a window, as every rewinder hears of it."""
    for seat in seats:
        if keep == size:
            with blamed(told, "commit()"):
                seat.rewinder.commit()
        else:
            with blamed(told, f"rewind({keep})"):
                seat.rewinder.rewind(keep)
        seat.window.tape = None
