"""The check of a proposal source."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, fields, frozen

from mlxfill import InputError, Policy, Proposal, Request
from mlxfill_testing.conformance.breach import Breach, blamed, said_of
from mlxfill_testing.conformance.lossless import check_lossless
from mlxfill_testing.conformance.report import Conformance
from mlxfill_testing.conformance.sessions.growth import Grown, growth
from mlxfill_testing.conformance.sessions.openings import OPENINGS, kit_request
from mlxfill_testing.conformance.sessions.playing import (
    Played,
    Step,
    Story,
    check_untouched,
    shared_parts,
    short,
    shown,
)
from mlxfill_testing.conformance.sessions.strangers import Talk, overheard
from mlxfill_testing.conformance.trial import Trial
from mlxfill_testing.models import VOCAB

if TYPE_CHECKING:
    from mlxfill import ProposalSource

    Answer = ProposalSource | Iterable[ProposalSource] | None

Factory = Callable[[Request], Any]
BUDGET = 200
RARELY = 12
"""One in so many tokens of a story strays from a given reply."""
LONG = 5_000
"""Tokens of the prompt that stands for a long one."""
USEFUL = 2
"""Ids from which on an engine takes a proposal for one."""
AGAIN = 3
"""How often a story is played before its offers are said to be the same every time."""
SLOW_S = 0.05
"""What an engine allows a call of ``propose``."""
CALLS = 10
"""Calls of ``propose`` that must all be slow: a busy machine delays one or two."""
SILENT = (
    "nothing was tested: it never offered two ids or more; if it needs certain requests or text,"
    " give sessions=[(request, reply_ids), ...], made by tiny_request and tiny_tokenizer"
)

UNJUDGED = (
    "that it changes no output was not tested: it never offered anything before a model that writes"
    " in the kit's requests"
)
UNPROVEN = (
    "whether what it asserts is true was not tested: it never asserted anything before a model, or"
    " in sessions=[(request, reply_ids), ...]"
)


def check_proposal_source(  # noqa: PLR0913 - all but the first by name
    factory: Callable[[Request], Answer],
    *,
    name: str = "",
    sessions: Sequence[tuple[Request, Sequence[int]]] = (),
    vocab_size: int = VOCAB,
    examples: int = 150,
    quick: bool = False,
) -> Conformance:
    """Run everything that a source must stand on the sources that ``factory`` makes.

    Contract: types, ids, the view's rules, one object a request, nothing shared between requests,
    the same offers whether tokens come one by one or at once (of a source that offers the same when
    it is asked the same; one that draws lots is warned of).  Hostile input: requests with broken
    tools and templates, one token of budget, thousands of tokens.  Losslessness: output with
    the source is plain output, in every kind of cache, greedy and sampled, in company, and where
    it asserts, trusted as well.  Growth: lines of Python for a token at two lengths of a session.

    :param factory: makes the source (or the list of sources, or None) of a request: the plugin's
        hook ``mlxfill_proposal_sources`` with its settings filled in.
    :param name: the plugin's name in messages, the source's own name by default.
    :param sessions: requests and replies that the source is for, where the kit's own requests say
        nothing to it; ids below ``vocab_size``.
    :param examples: sessions to try.
    :param quick: try a sixth of it, for a look after each change.
    :returns: how often it offered.  Assert that too.
    :raises ConformanceError: one line that says what it did and after which tokens.
    :raises ConformanceWarning: as a warning, where it never offered, never the same twice, or does
        more for each token the longer a session is.
    :raises InputError: ``sessions`` are no requests with ids.
    """
    __tracebackhide__ = True
    _check_sessions(sessions, vocab_size)
    battery = _Battery(factory, name, tuple(sessions), vocab_size)
    with said_of(name or "source"):
        battery.open()
        battery.listen()
    report, trial = Conformance(battery.name), Trial(battery.name, quick)
    trial.shortest(
        "sessions without a model",
        stories(len(sessions)),
        lambda story: battery.play(story, report),
        examples,
    )
    with said_of(battery.name):
        battery.play_sessions(report)
        battery.play_long()
    check_lossless(trial, factory, report)
    if battery.asserts:
        check_lossless(trial, factory, report, trusted=True)
    if not report.offers:
        report.warn(SILENT)
    elif not (report.judged or sessions):
        report.warn(UNJUDGED)
    if battery.asserts and not report.asserted:
        report.warn(UNPROVEN)
    with said_of(battery.name):
        grows = battery.growth()
    for said in grows:
        report.warn(said)
    for said in battery.unsteady.values():
        report.warn(said)
    return report


def stories(extra: int) -> Any:  # noqa: ANN401 - a hypothesis strategy
    """Sessions of repeated and unrepeated tokens; ``extra`` openings are the caller's."""
    from hypothesis import strategies as st

    low = st.integers(0, 5) | st.integers(0, VOCAB - 1)
    prompts = st.lists(low, min_size=1, max_size=10) | st.builds(
        lambda part, times: part * times, st.lists(low, min_size=1, max_size=8), st.integers(2, 5)
    )
    fresh = st.lists(st.none() | low, max_size=6).map(tuple)
    steps = st.builds(Step, st.integers(0, 6), fresh, st.sampled_from([1, 1, 1, 0, 2]))
    return st.builds(
        Story,
        st.integers(0, len(OPENINGS) + extra - 1),
        prompts.map(tuple),
        st.integers(1, 8),
        st.lists(steps, max_size=12).map(tuple),
    )


@frozen
class _Opening:
    """A request and how its reply is expected to go on."""

    request: Request
    words: str = ""
    reply: tuple[int, ...] | None = None

    def follows(self, token: int) -> bool:
        """Whether a token of a story gives way to a given reply, which few stray from."""
        return self.reply is not None and token % RARELY > 0

    def expected(self, tokens: Sequence[int], period: int) -> int:
        """The next id: of the given reply, or what stood a period ago."""
        if self.reply is not None:
            return self.reply[len(tokens) % len(self.reply)] if self.reply else 0
        known = [*self.request.prompt_ids, *tokens]
        return known[-period] if period <= len(known) else known[-1]


@define
class _Battery:
    factory: Factory
    name: str
    sessions: tuple[tuple[Request, Sequence[int]], ...]
    vocab_size: int
    unsteady: dict[str, str] = field(factory=dict)
    asserts: bool = False

    def open(self) -> None:
        """The factory answers, with one object a request, and what it makes is not slow."""
        if _lacks_settings(self.factory):
            name = getattr(self.factory, "__name__", "hook")
            raise Breach(
                f"the factory wants settings: hand over functools.partial({name}, settings=...)"
            )
        first, second = (self.sources(kit_request([1, 2, 3])) for _ in range(2))
        if first and not self.name:
            self.name = type(first[0]).__name__
        self.name = self.name or "source"
        shared = [s for s in first if any(s is other for other in second)]
        if shared:
            raise Breach("the factory gives the same source to two requests: make one for each")
        for source in first:
            self._time(source)

    def _time(self, source: Any) -> None:  # noqa: ANN401
        """A source that sleeps would keep the stories busy for minutes, and no engine keeps it."""
        times: list[float] = []
        with suppress(Breach):  # the stories will tell, after the shortest example
            played = self._played(_Opening(kit_request([1, 2, 3])), source)
            for token in range(CALLS):
                started = time.perf_counter()
                offer = played.ask()
                times.append(time.perf_counter() - started)
                if offer is not None:
                    played.settle(offer, 0)
                played.enter((token,))
        if len(times) == CALLS and min(times) > SLOW_S:
            raise Breach(
                f"the source took over {SLOW_S} s for each of {CALLS} calls of propose():"
                " an engine leaves it out of a request after two of them"
            )

    def play_sessions(self, report: Conformance) -> None:
        """The caller's sessions from end to end, token by token."""
        for at, (request, reply) in enumerate(self.sessions):
            steps = (Step(0, (None,)),) * len(reply)
            self.play(Story(len(OPENINGS) + at, (), 1, steps), report)
            report.asserted += self._check_asserts(_Opening(request, "", tuple(reply)))

    def _check_asserts(self, opening: _Opening) -> int:
        """What a source asserts in a given session stands there; returns how many ids."""
        reply, asserted = opening.reply or (), 0
        for source in self.sources(opening.request):
            played = self._played(opening, source)
            for at, token in enumerate(reply):
                offer, rest = played.ask(), reply[at:]
                if offer is not None:
                    due, agreed = _bound(offer, opening.request), _agreed(offer, rest)
                    sure = offer.policy is Policy.ASSERT
                    if sure and agreed < min(due, len(rest)):
                        raise played.breach(
                            f"asserts {shown(offer.ids)}, and the session goes on with"
                            f" {shown(rest[:due])}: offer guesses as Policy.VERIFY"
                        )
                    asserted += agreed if sure else 0
                    played.settle(offer, agreed)
                played.enter((token,))
        return asserted

    def play_long(self) -> None:
        """Thousands of tokens, in bursts."""
        tokens = [(i * i) % 61 for i in range(LONG)]
        for source in self.sources(kit_request(tokens)):
            played = self._played(_Opening(kit_request(tokens)), source)
            for _ in range(4):
                played.ask()
                played.enter(tokens[:50])

    def listen(self) -> None:
        """Two users say the same beginning; the second one hears nothing of the first one."""
        told = overheard(self._heard, ("", "a chat"))
        if told:
            raise Breach(told)

    def _heard(self, talk: Talk) -> set[int]:
        """Ids that are offered in a request; what else is wrong in it the stories will tell."""
        request = evolve(kit_request(talk.prompt, talk.opening), session=talk.session)
        ids: set[int] = set()
        with suppress(Breach):
            for source in self.sources(request):
                played = self._played(_Opening(request), source)
                for at in range(len(talk.reply) + 1):
                    offer = played.ask()
                    if offer is not None:
                        ids.update(offer.ids)
                        played.settle(offer, _agreed(offer, talk.reply[at:]))
                    played.enter(talk.reply[at : at + 1])
                played.end()
        return ids

    def growth(self) -> list[str]:
        """A line for each source whose work for one token grows with the session."""

        def begun(at: int, length: int) -> Grown:
            tokens = [(i * i) % 61 for i in range(length)]
            return Grown(self.sources(kit_request(tokens))[at], tokens)

        count = len(self.sources(kit_request([1, 2, 3])))
        return [told for at in range(count) if (told := growth(partial(begun, at)))]

    def sources(self, request: Request) -> list[Any]:
        """What the factory makes of a request."""

        def told(said: str) -> Breach:
            prompt = shown(request.prompt_ids)
            return Breach(f"for the prompt {prompt} the factory {said}", len(request.prompt_ids))

        given = shared_parts(request)
        with blamed(told, "making the source"):
            answer = self.factory(request)
        check_untouched(request, given, told)
        with blamed(told, "making the source"):
            if answer is None:
                return []
            if hasattr(answer, "propose"):
                if _is_hook(self.factory):
                    raise told(f"is a hook and answered {short(answer)}, not a list of sources")
                return [answer]
            if not isinstance(answer, Iterable) or isinstance(answer, str):
                raise told(f"answered {short(answer)}, which has no propose()")
            return list(answer)

    def play(self, story: Story, report: Conformance) -> None:
        """One story: alone, again, one token at a time, beside another request."""
        opening = self._opening(story)
        first = [self._run(opening, story, s) for s in self.sources(opening.request)]
        report.stories += 1
        report.offers += sum(len(o.ids) >= USEFUL for p in first for o in p.offers if o)
        self.asserts |= any(o.policy is Policy.ASSERT for p in first for o in p.offers if o)
        report.accepted += sum(p.accepted for p in first)
        for at, played in enumerate(first):
            if self._repeats(opening, story, at, played):
                self._alike(opening, story, at, played)

    def _repeats(self, opening: _Opening, story: Story, at: int, usual: Played) -> bool:
        """Whether it offers the same when it is asked the same: else it draws lots, as it may."""
        name = type(usual.source).__name__
        if name in self.unsteady:
            return False
        again = self._run(opening, story, self._source(opening, at))
        pairs = zip(usual.offers, again.offers, strict=False)
        odd = next(((a, b) for a, b in pairs if a != b), None)
        if odd is None:
            return True
        once, again_ = _apart(*odd)
        self.unsteady[name] = (
            f"does not offer the same twice ({once}, then {again_} in the same session): it draws"
            " lots, or requests share what it knows; which of them could not be checked"
        )
        return False

    def _alike(self, opening: _Opening, story: Story, at: int, usual: Played) -> None:
        """Offers that repeat depend on the session alone."""
        singly = self._run(opening, story, self._source(opening, at), singly=True)
        stranger = _Opening(kit_request([7, *opening.request.prompt_ids[::-1], 7]))
        others = self.sources(stranger.request)
        source = self._source(opening, at)
        beside = [self._played(stranger, other) for other in others]
        company = self._run(opening, story, source, beside=beside)
        differences = (
            (singly, "when tokens come one by one", "when they come at once"),
            (company, "while another request is open", "alone"),
        )
        for other, there, here in differences:
            said = _difference(usual, other, there, here)
            if said and all(self._repeats(opening, story, at, usual) for _ in range(AGAIN)):
                raise usual.breach(said)

    def _source(self, opening: _Opening, at: int) -> Any:  # noqa: ANN401
        """Another source for the same request: the one that stands at the same place."""
        made = self.sources(opening.request)
        if at >= len(made):
            prompt = shown(opening.request.prompt_ids)
            raise Breach(f"for the prompt {prompt} the factory makes more sources once than again")
        return made[at]

    def _opening(self, story: Story) -> _Opening:
        if story.opening < len(OPENINGS):
            words = list(OPENINGS)[story.opening]
            return _Opening(kit_request(story.prompt, words), words)
        request, reply = self.sessions[story.opening - len(OPENINGS)]
        return _Opening(request, "", tuple(reply))

    def _played(self, opening: _Opening, source: Any) -> Played:  # noqa: ANN401
        limit = opening.request.limits.max_tokens
        size = self.vocab_size if opening.reply is not None else VOCAB
        budget = min(BUDGET, limit) if limit >= 0 else BUDGET
        return Played(opening.request, source, size, budget, opening.words)

    def _run(
        self,
        opening: _Opening,
        story: Story,
        source: Any,  # noqa: ANN401
        *,
        singly: bool = False,
        beside: Sequence[Played] = (),
    ) -> Played:
        played = self._played(opening, source)
        for step in story.steps:
            offer = None
            for other in beside:
                with suppress(Breach):  # a story of its own will tell
                    other.ask()
                    other.enter((3, 1, 4))
            came = 0  # ids of the offer that entered while it stood
            for _ in range(step.asked):
                if offer is not None and came < len(offer.ids) and played.budget > 1:
                    # Its first id came true in a plain step: the rest stands while it is asked.
                    played.enter(offer.ids[came : came + 1])
                    came += 1
                again = played.ask()
                if again is not None and offer is not None:
                    played.settle(offer, came)
                if again is not None:
                    offer, came = again, 0
            ids = []
            if offer is not None:
                more = min(step.accepted, max(played.budget - 1, 0))
                ids = list(offer.ids[came : came + more])
                played.settle(offer, came + len(ids))
            played.enter(ids, singly=singly)
            fresh: list[int] = []
            for token in step.fresh:
                known = [*played.tokens, *fresh]
                usual = token is None or opening.follows(token)
                fresh.append(opening.expected(known, story.period) if usual else token or 0)
            played.enter(fresh, singly=singly)
            if played.budget <= 0:
                break
        played.end()
        return played


def _difference(usual: Played, other: Played, there: str, here: str) -> str:
    """Where two runs of a story offer different ids, in a sentence; empty where they do not."""
    for i, (a, b) in enumerate(zip(usual.offers, other.offers, strict=False)):
        if a != b:
            mine, theirs = _apart(a, b)
            return f"offers {theirs} {there} and {mine} {here} (in call {i + 1} of propose())"
    return ""


def _apart(one: Proposal | None, other: Proposal | None) -> tuple[str, str]:
    """Two offers in words that differ: their ids, and where these are the same what is not."""
    if one is None or other is None or one.ids != other.ids:
        return _ids(one), _ids(other)
    names = (each.name for each in fields(Proposal))
    name = next(key for key in names if getattr(one, key) != getattr(other, key))
    said, said_too = (f"{_ids(each)} with {name} {getattr(each, name)}" for each in (one, other))
    return said, said_too


def _agreed(offer: Proposal, rest: Sequence[int]) -> int:
    """Ids of an offer that the session goes on with."""
    pairs = enumerate(zip(offer.ids, rest, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(offer.ids), len(rest)))


def _bound(offer: Proposal, request: Request) -> int:
    """Ids of an offer that an engine would use."""
    ends = (at for at, token in enumerate(offer.ids, 1) if token in request.delimiters)
    return next(ends, len(offer.ids)) if offer.delimiter_bound else len(offer.ids)


def _is_hook(factory: Factory) -> bool:
    """Whether it is marked as a hook, with its settings filled in or without."""
    return hasattr(getattr(factory, "func", factory), "mlxfill_impl")


def _lacks_settings(factory: Factory) -> bool:
    try:
        wanted = inspect.signature(factory).parameters.get("settings")
    except (TypeError, ValueError):  # what is built in shows none
        return False
    return wanted is not None and wanted.default is inspect.Parameter.empty


def _check_sessions(sessions: Sequence[Any], vocab_size: int) -> None:
    """Raise ``InputError`` unless these are requests with the ids of their replies."""
    for at, session in enumerate(sessions):
        due = f"sessions[{at}] must be a request and the reply's ids"
        pair = isinstance(session, tuple | list) and len(session) == 2  # noqa: PLR2004
        if not pair or not isinstance(session[0], Request):
            raise InputError(f"{due}, not {short(session)}")
        reply = session[1]
        if isinstance(reply, str) or not all(type(each) is int for each in reply):
            raise InputError(f"{due}, its reply is {short(reply)}: encode it with the tokenizer")
        beyond = next((each for each in reply if not 0 <= each < vocab_size), None)
        if beyond is not None:
            raise InputError(f"{due} below vocab_size {vocab_size}, its reply has the id {beyond}")


def _ids(offer: Any) -> str:  # noqa: ANN401
    return "nothing" if offer is None else shown(offer.ids)
