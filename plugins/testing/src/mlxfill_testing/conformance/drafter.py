"""The check of a drafter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import define, frozen

from mlxfill import Chooser, DraftKind, Sampling, TargetView, hookimpl
from mlxfill_testing.conformance.breach import Breach, blamed, said_of
from mlxfill_testing.conformance.lossless import Seated, compare
from mlxfill_testing.conformance.report import Conformance
from mlxfill_testing.conformance.rows.aux_states import AuxStates
from mlxfill_testing.conformance.rows.batch import Batch, Setting
from mlxfill_testing.conformance.rows.checkpoints import check_refusals
from mlxfill_testing.conformance.rows.disbelief import DEPTH, check_disbelief
from mlxfill_testing.conformance.sessions.playing import short
from mlxfill_testing.conformance.sessions.strangers import Talk, overheard
from mlxfill_testing.conformance.trial import Trial
from mlxfill_testing.guest import engine_with
from mlxfill_testing.kinds import CACHE_KINDS
from mlxfill_testing.models import VOCAB

if TYPE_CHECKING:
    from mlxfill import DraftProvider, DraftRows

Factory = Callable[[TargetView], Any]
ATTRIBUTES: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "weights_bytes": (int,),
    "default_depth": (int,),
    "supports_target_adapters": (bool,),
    "supports_external_tokens": (bool,),
}
METHODS = ("prefill", "draft", "commit", "consume", "append", "keep", "capture", "close")
SAMPLINGS = (Sampling(seed=1), Sampling(seed=2, temperature=0.9))
ENGINE_EXAMPLES = 16
MOST_ROWS = 4
SITS_OUT = 192
"""Bytes from which on a row sits a round out: a quarter of them."""
IDS = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 30, VOCAB - 2, VOCAB - 1]
"""Few tokens, so that they repeat, and the last ones of the vocabulary."""


@frozen
class Act:
    """Something that happens to the rows.

    ``chosen`` holds numbers and tokens as bytes: one choice in place of many, which hypothesis
    makes smaller in less time.
    """

    what: str
    chosen: bytes
    depth: int = 1

    @property
    def numbers(self) -> list[int]:
        """A number for each row, 0 to 4."""
        return [byte % 5 for byte in self.chosen[:MOST_ROWS]]

    @property
    def ids(self) -> list[int]:
        """Three tokens for each row."""
        return [IDS[byte % len(IDS)] for byte in self.chosen[MOST_ROWS:]]

    def out(self, rows: int) -> list[bool]:
        """Which of the first rows sit a round out; never all of them."""
        out = [byte >= SITS_OUT for byte in self.chosen[:rows]]
        return [False] * rows if all(out) else out


@frozen
class DraftStory:
    """Prompts of one length, and what happens then."""

    prompts: tuple[tuple[int, ...], ...]
    acts: tuple[Act, ...]
    sampled: bool


def check_draft_provider(
    factory: Callable[[TargetView], DraftProvider],
    *,
    name: str = "",
    model: Any = None,  # noqa: ANN401 - an mlx-lm model
    examples: int = 120,
    quick: bool = False,
) -> Conformance:
    """Run everything that a drafter must stand on the provider that ``factory`` makes.

    Contract: attributes, shapes, ids.  Rows: several at once draft what each would draft alone,
    whatever was accepted of each; they join, leave and change places.  Checkpoints: a row that
    was captured, stored and restored goes on as if it had never stopped; foreign ones are refused
    with ``DrafterError``.  Losslessness: output with the drafter is plain output, in every
    kind of cache, greedy and sampled, in company.

    :param factory: makes the provider for a target of 64 ids and a hidden size of 64: what the
        plugin's ``DraftKind.load`` does.
    :param name: the plugin's name in messages, the provider's ``id`` by default.
    :param model: the target of stories without a model run, a tiny llama by default.
    :param examples: stories to try.
    :param quick: try a sixth of it, for a look after each change.
    :returns: how often it drafted.  Assert that too.
    :raises ConformanceError: one line that says what it did and when.
    :raises ConformanceWarning: as a warning, where it never drafted.
    """
    __tracebackhide__ = True
    with engine_with(CACHE_KINDS["trimmable"].model() if model is None else model) as engine:
        target = engine.target
        with said_of(name or "drafter"):
            battery = _Battery.of(factory, name, target)
            battery.listen()
        report, trial = Conformance(battery.name), Trial(battery.name, quick)
        trial.shortest(
            "stories of rows",
            stories(2 if battery.full else 1),
            lambda story: battery.play(story, report),
            examples,
        )
        with said_of(battery.name):
            battery.refuse()
            check_disbelief(battery.alone)
            with blamed(lambda said: Breach(f"the drafter {said}"), "close() of the provider"):
                battery.provider.close()
    compare(trial, lambda _: Mounted(factory), report, ENGINE_EXAMPLES)
    if not report.offers:
        report.warn("nothing was tested: it never drafted; hand over the model that it is for")
    return report


def stories(shortest_prompt: int) -> Any:  # noqa: ANN401 - a hypothesis strategy
    """Rows that draft, accept raggedly, consume, leave, join and are restored."""
    from hypothesis import strategies as st

    ids = st.sampled_from(IDS)
    acts = st.builds(
        Act,
        st.sampled_from(
            ["round", "round", "consume", "keep", "keep", "join", "capture", "restore"]
        ),
        st.binary(min_size=4 * MOST_ROWS, max_size=4 * MOST_ROWS),
        st.integers(1, 6),
    )
    prompts = st.integers(shortest_prompt, 12).flatmap(
        lambda length: st.lists(
            st.lists(ids, min_size=length, max_size=length).map(tuple), min_size=1, max_size=3
        )
    )
    many = st.lists(acts, max_size=8) | st.lists(acts, min_size=4, max_size=8)
    return st.builds(DraftStory, prompts.map(tuple), many.map(tuple), st.booleans())


@define
class _Battery:
    name: str
    provider: Any
    target: TargetView
    width: int
    full: bool

    @classmethod
    def of(cls, factory: Factory, name: str, target: TargetView) -> _Battery:
        """Make the provider and look at what it and its rows say of themselves."""

        def told(said: str) -> Breach:
            return Breach(f"the drafter {said}")

        with blamed(told, "making the provider"):
            provider = factory(target)
            _check_provider(provider, told)
            rows = provider.open(target, [Chooser(SAMPLINGS[0])], [None])
            _check_rows(rows, target, told)
        width = target.hidden_size * len(rows.aux_layers)
        full = rows.prefill_mode == "full"
        with blamed(told, "close()"):
            rows.close()
        return cls(name or provider.id, provider, target, width, full)

    def setting(self, *, sampled: bool) -> Setting:
        """What rows are opened with."""
        sampling = Chooser(SAMPLINGS[sampled])
        return Setting(self.provider, self.target, sampling, AuxStates(self.width))

    def listen(self) -> None:
        """Two users say the same beginning; the second one hears nothing of the first one."""
        told = overheard(self._heard)
        if told:
            raise Breach(told)

    def _heard(self, talk: Talk) -> set[int]:
        """Ids that are drafted in a request, in which no draft is kept.

        What else is wrong the stories will tell.
        """
        ids: set[int] = set()
        with suppress(Breach):
            batch = self.alone(talk.prompt)
            for token in (*talk.reply, 0):
                ids.update(batch.go_on(DEPTH, token))
            batch.end()
        return ids

    def alone(self, prompt: Sequence[int]) -> Batch:
        """One row that never samples."""
        return Batch.begin(self.setting(sampled=False), [prompt])

    def refuse(self) -> None:
        """Foreign checkpoints, after a short prompt and a longer one."""
        for prompt in ([0, 1], [3, 1, 4, 1, 5, 9]):
            batch = self.alone(prompt)
            check_refusals(batch.rows, batch.setting.sampling, batch.capture(0), batch.breach)
            batch.end()

    def play(self, story: DraftStory, report: Conformance) -> None:
        """One story from prompts to closed rows."""
        batch = Batch.begin(self.setting(sampled=story.sampled), story.prompts)
        for act in story.acts:
            _do(batch, act, self.full)
        batch.end()
        report.stories += 1
        report.offers += batch.drafted
        report.accepted += batch.kept


def _do(batch: Batch, act: Act, full: bool) -> None:
    rows = len(batch.members)
    if act.what == "round":
        batch.round(act.depth, act.numbers[:rows], act.ids[:rows], act.out(rows))
    elif act.what == "consume" and batch.setting.provider.supports_external_tokens:
        batch.consume([act.ids[at : at + n] for at, n in enumerate(act.numbers[:rows])])
    elif act.what == "keep":
        batch.keep(list(dict.fromkeys(n % rows for n in act.numbers)))
    elif act.what == "join" and rows < MOST_ROWS:
        batch.join(act.ids[: max(act.numbers[0], 2 if full else 1)])
    elif act.what == "capture":
        batch.capture(act.numbers[0] % rows)
    elif act.what == "restore":
        batch.restore()
        batch.round(act.depth, act.numbers[:rows], act.ids[:rows], act.out(rows))


def _check_provider(provider: Any, told: Callable[[str], Breach]) -> None:  # noqa: ANN401
    for key, kinds in ATTRIBUTES.items():
        value = getattr(provider, key, ...)
        if type(value) not in kinds:
            words = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
            raise told(f"has {key} {'missing' if value is ... else short(value)}, not {words}")
    if not provider.id:
        raise told("has an empty id")
    for key, least in (("weights_bytes", 0), ("default_depth", 1)):
        if getattr(provider, key) < least:
            raise told(f"has {key} {getattr(provider, key)}, at least {least} is due")
    for method in ("open", "close"):
        if not callable(getattr(provider, method, None)):
            raise told(f"has no method {method}()")


def _check_rows(rows: DraftRows, target: TargetView, told: Callable[[str], Breach]) -> None:
    for method in METHODS:
        if not callable(getattr(rows, method, None)):
            raise told(f"opens rows without a method {method}()")
    if rows.prefill_mode not in {"tail-split", "full"}:
        raise told(f"opens rows of prefill_mode {rows.prefill_mode!r}, not 'tail-split' or 'full'")
    aux_states = rows.aux_layers
    if type(aux_states) is not tuple or not _within(aux_states, target.layer_count):
        last = target.layer_count - 1
        raise told(
            f"opens rows of aux_layers {short(aux_states)}, not a tuple of layers 0 to {last}"
        )
    if type(rows.row_count) is not int or rows.row_count != 1:
        raise told(f"opens {short(rows.row_count)} rows for one checkpoint")


def _within(numbers: Sequence[Any], size: int) -> bool:
    return all(type(n) is int and 0 <= n < size for n in numbers)


class Mounted:
    """A plugin whose one kind of drafter is the one under test."""

    name = Seated.name

    def __init__(self, factory: Factory) -> None:
        self._factory = (factory,)
        self.drafter = self

    @hookimpl
    def mlxfill_draft_kinds(self) -> list[DraftKind]:
        """The kind."""

        def load(_artifact: object, target: TargetView, _settings: object) -> DraftProvider:
            __tracebackhide__ = True
            provider: DraftProvider = self._factory[0](target)
            return provider

        return [DraftKind("scripted", "draft", lambda _folder: False, load, needs_artifact=False)]
