"""One source in one session without a model: the tokens come from a story."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from attrs import define, field, fields, frozen

from mlxfill import Policy, Proposal
from mlxfill_testing.conformance.breach import Breach, blamed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlxfill import Request

TYPES = {
    "ids": (tuple, "a tuple"),
    "policy": (Policy, "a Policy"),
    "origin": (str, "a str"),
    "delimiter_bound": (bool, "a bool"),
    "evidence": (int, "an int"),
}
"""The exact types of a proposal's fields, and their names in a sentence."""
SHARED = ("messages", "tools", "template_options")
"""What of a request the caller of an engine goes on to use."""
LONGEST = 1_000
"""Ids of one proposal; an engine uses a few dozen of them."""
SHOWN = 24
"""Ids shown of a longer list, half of them from its end."""


@frozen
class Step:
    """What comes next: of an offer ``accepted`` ids, then ``fresh`` ones.

    A None among the fresh ids goes on as the session's opening expects.
    """

    accepted: int
    fresh: tuple[int | None, ...]
    asked: int = 1


@frozen
class Story:
    """A session: prompt, how it repeats itself, and its steps."""

    opening: int
    prompt: tuple[int, ...]
    period: int
    steps: tuple[Step, ...]


class StrictView:
    """A ``TokenView`` that knows whether it may be used or no more."""

    def __init__(self, tokens: Sequence[int], budget: int) -> None:
        self._tokens, self._budget = tokens, budget
        self.misuse = ""
        self.over = False

    @property
    def length(self) -> int:
        """Tokens of the session."""
        self._seen()
        return len(self._tokens)

    @property
    def budget(self) -> int:
        """Tokens that may still come."""
        self._seen()
        return self._budget

    def tail(self, n: int) -> Sequence[int]:
        """The last ``n`` ids."""
        self._seen()
        return list(self._tokens[-n:]) if n > 0 else []

    def _seen(self) -> None:
        if self.over:
            self.misuse = "used the view after propose() had returned"


def shown(ids: Sequence[int]) -> str:
    """Ids in a sentence, long lists with their middle left out."""
    if len(ids) <= SHOWN:
        return str(list(ids))
    half = SHOWN // 2
    return f"{str(list(ids[:half]))[:-1]}, ... {str(list(ids[-half:]))[1:]} ({len(ids)} ids)"


@define
class Played:
    """One source while its session is played.  ``offers``: what it offered, ask by ask."""

    request: Request
    source: Any
    vocab_size: int
    budget: int
    opened: str = ""
    tokens: list[int] = field(factory=list)
    offers: list[Proposal | None] = field(factory=list)
    accepted: int = 0
    _views: list[StrictView] = field(factory=list)
    _given: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._given = shared_parts(self.request)
        with blamed(self.breach, "its attributes"):
            self._check_attributes()

    def breach(self, said: str) -> Breach:
        """A breach in the words of this session."""
        prompt = shown(self.request.prompt_ids)
        words = f"after the prompt {prompt}"
        if self.opened:
            words = f"in a request with {self.opened}, {words}"
        if self.tokens:
            words += f" and the tokens {shown(self.tokens)}"
        return Breach(f"{words} the source {said}", len(self.request.prompt_ids) + len(self.tokens))

    # --- what the loop does -----------------------------------------------------------

    def ask(self) -> Proposal | None:
        """``near`` and ``propose``; checks the answer."""
        near = getattr(self.source, "near", None)
        if near is not None:
            with blamed(self.breach, "near()"):
                bool(near())
        view = StrictView([*self.request.prompt_ids, *self.tokens], self.budget)
        with blamed(self.breach, "propose()"):
            proposal: Proposal | None = self.source.propose(view)
        view.over = True
        self._views.append(view)
        self._check_views()
        if proposal is not None:
            self._check(proposal)
        self.offers.append(proposal)
        return proposal

    def settle(self, proposal: Proposal, accepted: int) -> None:
        """The outcome, then the tokens."""
        self.accepted += accepted
        with blamed(self.breach, "resolved()"):
            self.source.resolved(proposal, accepted)
        self._check_views()

    def enter(self, ids: Sequence[int], *, singly: bool = False) -> None:
        """Tokens entered, at once or one by one."""
        for part in [(each,) for each in ids] if singly else [tuple(ids)]:
            if part:
                with blamed(self.breach, f"observe({part})"):
                    self.source.observe(part)
                self.tokens += part
                self.budget -= len(part)
        self._check_views()

    def end(self) -> None:
        """Counters as an engine reads them when the request is over."""
        with blamed(self.breach, "counts"):
            counts = getattr(self.source, "counts", None) or {}
            wrong = [k for k, n in dict(counts).items() if type(n) is not int or type(k) is not str]
        if wrong:
            raise self.breach(f"has the counter {wrong[0]!r} in counts, which is no name of an int")
        with blamed(self.breach, "its attributes"):
            self._check_attributes()
        check_untouched(self.request, self._given, self.breach)

    # --- checks -------------------------------------------------------------------------

    def _check_attributes(self) -> None:
        source = self.source
        for method in ("propose", "observe", "resolved"):
            if not callable(getattr(source, method, None)):
                raise self.breach(f"has no method {method}()")

    def _check_views(self) -> None:
        for view in self._views:
            if view.misuse:
                raise self.breach(view.misuse)

    def _check(self, proposal: Any) -> None:  # noqa: ANN401 - plugins are not always typed
        if type(proposal) is not Proposal:
            raise self.breach(
                f"answered {short(proposal)} of {type(proposal).__name__} in"
                " propose(), not a Proposal or None"
            )
        for each in fields(Proposal):
            kind, words = TYPES[each.name]
            value = getattr(proposal, each.name)
            if type(value) is not kind:
                raise self.breach(f"offered as {each.name} {short(value)}, not {words}")
        for token in proposal.ids:
            if type(token) is not int:
                raise self.breach(f"offered {short(token)} among its ids, not an int")
            if not 0 <= token < self.vocab_size:
                raise self.breach(
                    f"offered id {token}, outside the vocabulary of {self.vocab_size}"
                )
        if len(proposal.ids) > LONGEST:
            raise self.breach(f"offered {len(proposal.ids)} ids at once, {LONGEST} is plenty")
        if proposal.evidence < 0:
            raise self.breach(f"offered with evidence {proposal.evidence}, less than none")
        if not proposal.origin:
            raise self.breach("offered under an empty origin, which no result can show")


def shared_parts(request: Request) -> Any:  # noqa: ANN401
    """A copy of what the caller of an engine goes on to use."""
    return deepcopy([getattr(request, name) for name in SHARED])


def check_untouched(request: Request, given: Any, told: Callable[[str], Breach]) -> None:  # noqa: ANN401
    """Raise the breach of a source that wrote into what the caller goes on to use."""
    for name, before in zip(SHARED, given, strict=True):
        if before != getattr(request, name):
            raise told(f"wrote into request.{name}, which the caller goes on to use")


def short(value: object) -> str:
    """A value in a sentence, whatever its ``repr`` does."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - a plugin's object
        text = " at 0x"
    if " at 0x" in text:  # where it lies in memory tells nobody anything
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004
