"""The check of a rewinder for a kind of cache entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import define, field, frozen

from mlxfill import CacheWindow, ModelError
from mlxfill_testing.caches import contents
from mlxfill_testing.conformance.breach import Breach, ConformanceError, blamed, said_of
from mlxfill_testing.conformance.report import Conformance
from mlxfill_testing.conformance.sessions.playing import short
from mlxfill_testing.conformance.trial import Trial
from mlxfill_testing.guest import engine_with
from mlxfill_testing.kinds import CACHE_KINDS
from mlxfill_testing.models import ROUNDING, VOCAB

if TYPE_CHECKING:
    from mlxfill import CacheRewinder, LayerReplay, TargetView

    Factory = Callable[[object, LayerReplay, TargetView], CacheRewinder | None]
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
    quick: bool = False,
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
    :param quick: try a sixth of it, for a look after each change.
    :returns: how many windows were taken back.
    :raises ConformanceError: one line that says what was wrong and after which windows.
    """
    __tracebackhide__ = True
    models = [kind.model() for kind in CACHE_KINDS.values()] if model is None else [model]
    report, trial = Conformance(name), Trial(name, quick)
    for each in models:
        with engine_with(each) as engine:
            battery = _Battery(factory, engine.target)
            with said_of(name):
                battery.learn()
            if battery.taken:
                play = partial(battery.play, report=report)
                trial.shortest("stories of windows", stories(), play, examples)
    if not report.stories:
        entries = "its entries" if model is not None else "any entry of mlx-lm's kinds"
        raise ConformanceError(
            f"{name}: the factory takes none of {entries}: hand over the model that it is for"
        )
    return report


def stories() -> Any:  # noqa: ANN401 - a hypothesis strategy
    """Up to six windows after a prompt of up to twelve ids."""
    from hypothesis import strategies as st

    window = st.integers(1, LARGEST).flatmap(
        lambda size: st.tuples(st.just(size), st.integers(1 if size == 1 else 0, size))
    )
    return st.builds(
        Windows, st.integers(1, 12), st.lists(window, min_size=1, max_size=6).map(tuple)
    )


@define
class _Battery:
    factory: Factory
    target: Any  # of an engine
    taken: bool = False
    exact: bool = True

    def learn(self) -> None:
        """Whether the factory takes an entry, and whether windows of this model are exact."""
        seats = self._seats()
        for entry in self.target.new_cache():  # each apart: one that nobody takes hides none
            self._window([entry], seats)
        self.taken = seats.taken
        ids = [(at * 37 + 11) % VOCAB for at in range(20)]
        whole = self.target.forward(mx.array([ids]), self.target.new_cache())[0, -1]
        step = self.forwarded(self.target.new_cache(), [[token] for token in ids])
        self.exact = bool(mx.array_equal(whole, step))

    def _seats(self, told: Told = Breach) -> _Seats:
        return _Seats(lambda entry, layer: self.factory(entry, layer, self.target), told)

    def _window(self, cache: list[Any], seats: _Seats) -> CacheWindow:
        return CacheWindow(self.target, cache, seats.make, make_first=True)

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
            window = self._window(ours, self._seats(told))
        if not window.supported:
            raise Breach(f"the factory takes no {window.unsupported}, and neither does the core")
        for size, keep in story.windows:
            chosen = [next(ids, 3) for _ in range(size)]
            if size == 1:
                log.append("a single step")
                self.forwarded(ours, [chosen])
                pieces.append(chosen)
            else:
                log.append(f"a window of {size} ids of which {keep} stay")
                mx.eval(window.forward(mx.array([chosen])))
                window.rewind(keep)
                with blamed(told, "what it left in the cache"):
                    mx.eval([entry.state for entry in ours])
                report.offers += keep < size
                report.accepted += keep
                if keep:
                    pieces.append(chosen[:keep])
            self._compare(ours, pieces, told)
        report.stories += 1

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


@define
class _Seats:
    """Makes the rewinders of one window: the plugin's, under its name where it takes an entry."""

    factory: Callable[[object, LayerReplay], Any]
    told: Told
    taken: bool = field(default=False, init=False)

    def make(self, entry: object, layer: LayerReplay) -> CacheRewinder | None:
        """The plugin's rewinder, None where it leaves the entry to the core."""

        def told(said: str) -> Breach:
            return Breach(f"for a {type(entry).__name__} the factory {said}")

        guarded = _Layer(layer)
        with blamed(told, "making the rewinder"):
            made = self.factory(entry, guarded)
        if made is None:
            return None
        for method in METHODS:
            if not callable(getattr(made, method, None)):
                raise told(f"answered {short(made)}, which has no {method}()")
        taped = getattr(made, "needs_replay", True)
        if type(taped) is not bool:
            raise told(f"answered a rewinder of needs_replay {short(taped)}, not bool")
        guarded.taped, self.taken = taped, True
        return _Blamed(made, taped, self.told)


@define
class _Layer:
    """A layer that replays nothing for a rewinder that said it never asks for that."""

    layer: LayerReplay
    taped: bool = True

    def window(self) -> int:
        """Ids in the newest window."""
        return self.layer.window()

    def replay(self, keep: int) -> None:
        """Call the layer again, if windows are taped for this rewinder."""
        if not self.taped:
            raise ModelError("nothing to replay: needs_replay is false, or no window is open")
        self.layer.replay(keep)


@frozen
class _Blamed:
    """A rewinder whose errors are breaches."""

    rewinder: CacheRewinder
    needs_replay: bool
    told: Told

    def begin(self) -> None:
        """Before a window."""
        with blamed(self.told, "begin()"):
            self.rewinder.begin()

    def commit(self) -> None:
        """The window stays."""
        with blamed(self.told, "commit()"):
            self.rewinder.commit()

    def rewind(self, keep: int) -> None:
        """Only ``keep`` ids stay."""
        with blamed(self.told, f"rewind({keep})"):
            self.rewinder.rewind(keep)
