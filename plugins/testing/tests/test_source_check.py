"""The check of sources finds what is planted, says it in one line, and lets right ones pass."""

from __future__ import annotations

import random
import re
import time
import traceback
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from attrs import evolve

from mlxfill import InputError, Policy, Proposal, Request, hookimpl
from mlxfill_testing import (
    ConformanceError,
    ConformanceWarning,
    check_proposal_source,
    engine_with,
    tiny_request,
)

COUNT = 14
"""Tokens of a reply in the engines of the check."""


class Again:
    """A right source: what followed the newest token the last time."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.ids = list(request.prompt_ids)
        self.resolutions = 0

    def found(self) -> list[int]:
        last = self.ids[-1]
        near = range(len(self.ids) - 2, max(len(self.ids) - 100, -1), -1)
        at = next((i for i in near if self.ids[i] == last), None)
        return [] if at is None else self.ids[at + 1 : at + 4]

    def observe(self, ids: Sequence[int]) -> None:
        self.ids.extend(ids)

    def propose(self, view: Any) -> Any:
        assert list(view.tail(2)) == self.ids[-2:]
        ids = self.found()
        return Proposal(tuple(ids), Policy.VERIFY, "again") if ids else None

    def resolved(self, _proposal: Proposal, _accepted: int) -> None:
        self.resolutions += 1


class Once(Again):
    """Offers the first time that it can, and never again."""

    said = False

    def propose(self, view: Any) -> Any:
        offer = None if self.said else super().propose(view)
        self.said = offer is not None
        return offer


class Impatient(Again):
    """Takes it that an offer is resolved before it is asked again."""

    waits = False

    def propose(self, view: Any) -> Any:
        assert not self.waits
        offer = super().propose(view)
        self.waits = offer is not None
        return offer

    def resolved(self, _proposal: Proposal, _accepted: int) -> None:
        self.waits = False


def test_a_source_that_offers_once_is_seen() -> None:
    found = check_proposal_source(Once)
    assert found.offers > 0
    assert found.judged > 0


def test_a_source_that_cannot_be_asked_while_its_offer_stands_is_told() -> None:
    with pytest.raises(ConformanceError, match="raised AssertionError"):
        check_proposal_source(Impatient)


def test_a_right_source_passes_and_is_counted() -> None:
    found = check_proposal_source(Again)
    assert found.name == "Again"
    assert found.stories > 150
    assert found.offers > 50
    assert found.accepted > 50


def test_a_source_that_never_speaks_passes_with_no_offers() -> None:
    def silent(_: Request) -> None: ...

    class Mute(Again):
        """Offers what no engine takes for an offer."""

        def propose(self, _view: Any) -> Any:
            return Proposal(tuple(self.ids[:1] if self.ids[-1] == 1 else ()), Policy.VERIFY, "x")

    for factory in (silent, Mute):
        with pytest.warns(
            ConformanceWarning,
            match=r"mute: nothing was tested: it never offered .* sessions=\[\(request",
        ):
            assert check_proposal_source(factory, name="mute", examples=60).offers == 0


@pytest.mark.parametrize("most", [2, 64])
def test_a_source_may_draw_lots_and_its_author_is_warned(most: int) -> None:
    class Drawn(Again):
        def found(self) -> list[int]:
            return [random.randrange(most) for _ in range(random.randrange(4))]

    with pytest.warns(ConformanceWarning, match=r"Drawn: does not offer the same twice \("):
        assert check_proposal_source(Drawn, examples=60).offers > 20


def test_the_number_of_sources_depends_on_the_request_alone() -> None:
    made: list[Again] = []

    def fewer(request: Request) -> Any:
        made.append(Again(request))
        return made[-1:] if len(made) % 2 else []

    with pytest.raises(ConformanceError, match="the factory makes more sources once than again"):
        check_proposal_source(fewer)


class Walks(Again):
    """Looks at the whole session in each call."""

    def propose(self, view: Any) -> Any:
        for _ in self.ids:
            pass
        return super().propose(view)


class Indexes(Again):
    """Makes its index anew now and then, from the beginning."""

    def observe(self, ids: Sequence[int]) -> None:
        super().observe(ids)
        if len(self.ids) % 32 == 0:
            self.index = {}
            for at, token in enumerate(self.ids * 8):
                self.index[token] = at


class Pairs(Again):
    """Compares each token with each other one."""

    def propose(self, view: Any) -> Any:
        return super().propose(view) if [a for a in self.ids for b in self.ids if a == b] else None


class Nears(Again):
    def near(self) -> bool:
        return any(token == 70 for token in self.ids)


@pytest.mark.parametrize("kind", [Walks, Indexes, Pairs, Nears])
def test_a_source_whose_work_for_a_token_grows_with_the_session_is_told(kind: type[Again]) -> None:
    with pytest.warns(ConformanceWarning, match=r"takes \d+ lines .* \d+ tokens and \d+ in one of"):
        check_proposal_source(kind, examples=10)


def test_so_is_one_whose_work_is_done_by_one_line() -> None:
    class Counts(Again):
        def propose(self, view: Any) -> Any:
            for _ in range(20):
                self.ids.count(70)
            return super().propose(view)

    with pytest.warns(
        ConformanceWarning, match=r"takes \d+ us .* \d+ tokens and \d+ in one of 2000"
    ):
        check_proposal_source(Counts, examples=10)


def test_what_fails_in_a_long_session_alone_is_told() -> None:
    class Tired(Again):
        def observe(self, ids: Sequence[int]) -> None:
            super().observe(ids)
            if len(self.ids) > 7_000:
                raise MemoryError("full")

    with pytest.raises(ConformanceError, match=r"after \d+ tokens the source raised MemoryError"):
        check_proposal_source(Tired, examples=10)


def test_an_assert_that_was_never_tried_is_told() -> None:
    class WithTools(Again):
        def propose(self, view: Any) -> Any:
            offer = super().propose(view)
            sure = offer and self.request.tools
            return Proposal(offer.ids, Policy.ASSERT, "again") if sure else offer

    with pytest.warns(ConformanceWarning, match="whether what it asserts is true was not tested"):
        assert check_proposal_source(WithTools).asserted == 0


def test_offers_that_no_model_saw_are_told() -> None:
    class Long(Again):
        """Speaks in sessions that are longer than those of the kit's models."""

        def propose(self, view: Any) -> Any:
            return super().propose(view) if len(self.ids) > 40 else None

    with pytest.warns(ConformanceWarning, match="that it changes no output was not tested"):
        assert check_proposal_source(Long).judged == 0


# --- planted faults ------------------------------------------------------------------------

PLANTED: dict[str, tuple[Any, str]] = {}
"""By name: a factory, and what the one line must say (a regular expression)."""


def planted(said: str, **body: Any) -> None:
    """Plant a subclass of the right source."""
    kind = type(f"Bad{len(PLANTED)}", (Again,), body)
    PLANTED[said] = (kind, said)


def offering(**changes: Any) -> Any:
    def propose(self: Any, _view: Any) -> Any:
        ids = self.found()
        fields = {"ids": tuple(ids), "policy": Policy.VERIFY, "origin": "x", **changes}
        return Proposal(**fields) if ids else None

    return propose


def with_ids(make: Any) -> Any:
    def propose(self: Any, _view: Any) -> Any:
        ids = self.found()
        return Proposal(make(ids), Policy.VERIFY, "x") if ids else None

    return propose


def raising(error: BaseException) -> Any:
    def method(*_: Any) -> Any:
        raise error

    return method


planted(
    r"^spec-foo: after the prompt \[(\d+), \1\] the source offered id 99999, outside the vocabulary"
    " of 64$",
    propose=with_ids(lambda ids: (*ids, 99999)),
)
planted(r"offered id -1, outside the vocabulary", propose=with_ids(lambda ids: (-1, *ids)))
planted(r"offered 1\.0 among its ids, not an int", propose=with_ids(lambda ids: (*ids, 1.0)))
planted(r"offered True among its ids, not an int", propose=with_ids(lambda ids: (*ids, True)))
planted(r"offered as ids \[.*\], not a tuple", propose=with_ids(list))
planted(r"offered as ids a generator, not a tuple", propose=with_ids(lambda i: (t for t in i)))
planted(r"offered 1000000 ids at once", propose=with_ids(lambda _: (1,) * 1_000_000))
planted(r"offered as policy 'verify', not a Policy", propose=offering(policy="verify"))
planted(r"offered as origin None, not a str", propose=offering(origin=None))
planted(r"offered under an empty origin", propose=offering(origin=""))
planted(r"offered as evidence 1\.5, not an int", propose=offering(evidence=1.5))
planted(r"with evidence -2, less than none", propose=offering(evidence=-2))
planted(
    r"answered \[.*\] of list in propose\(\), not a Proposal or None",
    propose=lambda self, _: self.found() or None,
)
planted(
    r"after the prompt \[0\] the source raised ValueError: no in propose\(\)",
    propose=raising(ValueError("no")),
)
planted(r"raised SystemExit: 3 in propose\(\)", propose=raising(SystemExit(3)))
planted(r"raised KeyError: 1 in observe\(\(.*\)\)", observe=raising(KeyError(1)))
planted(r"raised ZeroDivisionError in resolved\(\)", resolved=raising(ZeroDivisionError()))
planted(r"raised OSError: x in near\(\)", near=raising(OSError("x")))
planted(r"raised RecursionError", found=lambda self: self.found())
planted(r"has no method resolved\(\)", resolved=None)
planted(r"has the counter 'hits' in counts, which is no name of an int", counts={"hits": 0.5})


def plant(said: str) -> Any:
    """Plant what a decorated class does."""

    def keep(kind: Any) -> Any:
        PLANTED[said] = (kind, said)
        return kind

    return keep


@plant(r"used the view after propose\(\) had returned")
class Keeping(Again):
    view: Any = None

    def propose(self, view: Any) -> Any:
        self.view = view

    def observe(self, _ids: Sequence[int]) -> None:
        if self.view is not None:
            self.view.length  # noqa: B018


@plant(r"offers \[.*\] when tokens come one by one and .* when they come at once")
class LastOnly(Again):
    def observe(self, ids: Sequence[int]) -> None:
        self.ids.append(ids[-1])

    def propose(self, _view: Any) -> Any:
        return Proposal((*self.ids[-3:],), Policy.VERIFY, "x")


@plant(r"offers .* while another request is open and .* alone")
class Shared(Again):
    everyone: ClassVar[list[int]] = []

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.everyone[:] = request.prompt_ids

    def observe(self, ids: Sequence[int]) -> None:
        self.everyone.extend(ids)

    def propose(self, _view: Any) -> Any:
        return Proposal((*self.everyone[-3:],), Policy.VERIFY, "x")


@plant(r"raised IndexError: .* in propose\(\)")
class NeedsTwo(Again):
    def propose(self, _view: Any) -> Any:
        return self.ids[-2] and None


@plant(r"with a (template that refuses|chat with tools), after the prompt \[0\] .* raised KeyErr")
class ReadsTools(Again):
    def propose(self, _view: Any) -> Any:
        if self.request.tools and len(self.request.tools) == 1 and self.request.messages:
            return self.request.messages[0]["text"]
        return None


@plant(r"raised TypeError: 'str' object does not support item assignment in observe")
class Changing(Again):
    def observe(self, ids: Any) -> None:
        str(ids)[0] = "x"  # type: ignore[index]


@plant(r"with a \w+ cache, the prompt .* the plugin was quarantined in observe")
class Counting(Again):
    """Right until it has seen eleven tokens singly: stories are short, replies are not."""

    def observe(self, ids: Sequence[int]) -> None:
        super().observe(ids)
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls > 10 and self.request.limits.max_tokens == COUNT:
            raise RuntimeError("tired")


ONE = SimpleNamespace(
    propose=lambda _: None,
    observe=lambda _: None,
    resolved=lambda *_: None,
)
PLANTED |= {
    "the factory gives the same source to two requests": (lambda _: ONE, "gives the same source"),
    "the factory answers a number": (lambda _: 7, "the factory answered 7, which has no propose"),
    "the factory raises": (
        raising(LookupError("x")),
        r"for the prompt \[1, 2, 3\] the factory raised LookupError: x in making the source",
    ),
    "refuses a template": (
        lambda request: Again(request) if request.render([]) is not None else None,
        "TemplateError",
    ),
}


@plant(r"changed the output, as it asserts guesses: offer them as Policy\.VERIFY")
class Sure(Again):
    def propose(self, view: Any) -> Any:
        proposal = super().propose(view)
        return proposal and Proposal(proposal.ids, Policy.ASSERT, "again")


@plant(r"(source|factory) wrote into request\.messages, which the caller goes on to use")
class Writes(Again):
    def __init__(self, request: Request) -> None:
        super().__init__(request)
        for message in request.messages or ():
            message["content"] = "seen"  # type: ignore[index]


@plant(r"wrote into request\.tools")
class WritesLater(Again):
    def observe(self, ids: Sequence[int]) -> None:
        super().observe(ids)
        for tool in self.request.tools or ():
            tool.pop("function", None)  # type: ignore[attr-defined]


@plant(r"wrote into request\.template_options")
class WritesOptions(Again):
    def resolved(self, _proposal: Proposal, _accepted: int) -> None:
        if self.request.template_options:
            self.request.template_options.clear()  # type: ignore[attr-defined]


class Remembers(Again):
    """One table for the process: what followed ``order`` tokens, whoever said them."""

    order = 1
    late = keeps = False
    table: dict[tuple[int, ...], int]

    def __init_subclass__(cls) -> None:
        cls.table = {}

    def learn(self) -> None:
        for at in range(self.order, len(self.ids)):
            key = tuple(self.ids[at - self.order : at])
            self.table[key] = self.table.get(key, self.ids[at]) if self.keeps else self.ids[at]

    def observe(self, ids: Sequence[int]) -> None:
        super().observe(ids)
        if not self.late:
            self.learn()

    def resolved(self, _proposal: Proposal, accepted: int) -> None:
        if self.late and accepted:
            self.learn()

    def found(self) -> list[int]:
        ids = list(self.ids)
        while len(ids) < len(self.ids) + 3 and tuple(ids[-self.order :]) in self.table:
            ids.append(self.table[tuple(ids[-self.order :])])
        return ids[len(self.ids) :] or super().found()


for words, body in (
    ("what followed a token", {}),
    ("what followed three", {"order": 3}),
    ("what followed five, of what came true", {"order": 5, "late": True}),
    ("what was said first", {"order": 2, "keeps": True}),
):
    table_of = type("Remembers", (Remembers,), body)
    PLANTED[words] = (table_of, "offers to one request what another one said: after a request with")


@plant(r"offers to one request what another one said")
class RemembersReplies(Again):
    """Replies by their prompts."""

    replies: ClassVar[dict[tuple[int, ...], list[int]]] = {}

    def observe(self, ids: Sequence[int]) -> None:
        super().observe(ids)
        self.replies[self.request.prompt_ids] = list(self.ids)

    def found(self) -> list[int]:
        known, count = self.replies.get(self.request.prompt_ids, []), len(self.ids)
        return known[count : count + 3] if known[:count] == self.ids else super().found()


@plant(r"offers to one request what another one (said)")
class RemembersConversations(Again):
    """What was said last to the same messages."""

    said: ClassVar[dict[str, list[int]]] = {}

    def observe(self, ids: Sequence[int]) -> None:
        super().observe(ids)
        if self.request.messages:
            self.said[str(self.request.messages)] = self.ids[-3:]

    def found(self) -> list[int]:
        return self.said.get(str(self.request.messages)) or super().found()


@pytest.mark.parametrize("said", PLANTED)
def test_a_planted_fault_is_found_and_named(said: str) -> None:
    factory, pattern = PLANTED[said]
    with pytest.raises(ConformanceError) as caught:
        check_proposal_source(factory, name="spec-foo")
    message = str(caught.value)
    assert message.startswith("spec-foo: ")
    assert "\n" not in message
    assert re.search(pattern, message), message
    raised = bool(re.search(r"the (source|factory) raised", message))
    assert (caught.value.__cause__ is not None) is raised, "the plugin's own traceback"


def test_the_cause_is_what_the_plugin_raised_with_its_traceback() -> None:
    def lookup(ids: list[int]) -> int:
        return ids[99]

    class Deep(Again):
        def propose(self, _view: Any) -> Any:
            return lookup(self.ids)

    with pytest.raises(ConformanceError) as caught:
        check_proposal_source(Deep)
    cause = caught.value.__cause__
    assert isinstance(cause, IndexError)
    frames = [frame.name for frame in traceback.extract_tb(cause.__traceback__)]
    assert frames[-2:] == ["propose", "lookup"]


def test_offers_that_differ_in_evidence_alone_show_it() -> None:
    """The tokens are the same, and a message that shows them twice would contradict itself."""

    class Forgets(Again):
        matched = 0

        def observe(self, ids: Sequence[int]) -> None:
            super().observe(ids)
            self.matched = 1 if len(ids) > 1 else self.matched + 1

        def propose(self, _view: Any) -> Any:
            ids = tuple(self.found())
            return Proposal(ids, Policy.VERIFY, "x", evidence=self.matched) if ids else None

    with pytest.raises(ConformanceError) as caught:
        check_proposal_source(Forgets)
    assert re.search(
        r"offers (\[.*\]) with evidence \d+ when tokens come one by one and \1 with evidence 1 when"
        r" they come at once",
        str(caught.value),
    ), str(caught.value)


def test_sources_that_share_their_state_are_warned_of_as_such() -> None:
    everyone: list[int] = []

    class Common(Again):
        def observe(self, ids: Sequence[int]) -> None:
            everyone.extend(ids)

        def propose(self, _view: Any) -> Any:
            return Proposal((len(everyone) % 64, 5), Policy.VERIFY, "x")

    with pytest.warns(ConformanceWarning, match="it draws lots, or requests share what it knows"):
        check_proposal_source(Common, examples=30)


def test_an_assert_must_stand_in_the_session_that_was_given() -> None:
    class Sure(Again):
        def propose(self, view: Any) -> Any:
            offer = super().propose(view)
            sure = offer and self.request.session == "given"
            return Proposal(offer.ids, Policy.ASSERT, "again") if sure else offer

    request = evolve(tiny_request([1, 2, 3, 1, 2, 3]), session="given")
    with pytest.raises(ConformanceError, match=r"asserts \[1, 2, 3\], .* goes on with \[1, 2, 4\]"):
        check_proposal_source(Sure, sessions=[(request, [1, 2, 4, 9])], examples=10)
    found = check_proposal_source(Sure, sessions=[(request, [1, 2, 3, 1, 2, 3])], examples=10)
    assert found.asserted > 0


# --- what an author hands over -----------------------------------------------------------------


def test_a_hook_gives_a_list_as_the_host_wants_it() -> None:
    @hookimpl
    def mlxfill_proposal_sources(request: Request, settings: int = 2) -> Any:
        return Again(request) if settings else None

    for hook in (mlxfill_proposal_sources, partial(mlxfill_proposal_sources, settings=3)):
        with pytest.raises(ConformanceError, match=r"is a hook and answered .*Again, not a list"):
            check_proposal_source(hook)


def test_a_hook_without_its_settings_says_how_to_fill_them_in() -> None:
    def hook(request: Request, settings: int) -> Any:
        return [Again(request)] if settings else None

    unfilled: Any = hook
    with pytest.raises(ConformanceError, match=r"functools\.partial\(hook, settings=\.\.\.\)"):
        check_proposal_source(unfilled)


@pytest.mark.parametrize(
    ("sessions", "said"),
    [
        (["a"], r"sessions\[0\] must be a request and the reply's ids, not 'a'"),
        ([(tiny_request("on"), "there")], r"sessions\[0\] .*, its reply is 'there'"),
        ([(tiny_request("on"), [1]), (tiny_request("on"), [1, 64])], r"sessions\[1\] .* id 64$"),
        ([([1, 2], [3])], r"sessions\[0\] must be a request and the reply's ids, not \(\[1"),
    ],
)
def test_sessions_of_another_form_are_refused(sessions: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_proposal_source(Again, sessions=sessions)


def test_a_slow_source_is_named_soon_with_the_limit() -> None:
    asked: list[None] = []

    class Slow(Again):
        def propose(self, view: Any) -> Any:
            asked.append(None)
            time.sleep(0.06)
            return super().propose(view)

    with pytest.raises(ConformanceError, match=r"^slow: .* over 0\.05 s for each of \d+ calls"):
        check_proposal_source(Slow, name="slow")
    assert len(asked) < 30


def test_a_source_that_is_slow_in_an_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxfill.engine.builder.PROPOSE_BUDGET_S", 0.0)  # so everyone is slow
    with pytest.raises(ConformanceError, match=r"quarantined in \w+: TimeoutError: took 0"):
        check_proposal_source(Again)


def test_the_example_is_the_shortest() -> None:
    class Late(Again):
        def propose(self, _view: Any) -> Any:
            return Proposal((64,), Policy.VERIFY, "x") if 3 in self.ids and 5 in self.ids else None

    with pytest.raises(ConformanceError) as caught:
        check_proposal_source(Late)
    ids = sorted(map(int, re.findall(r"\d+", str(caught.value).split("offered")[0])))
    assert ids == [3, 5]


def test_a_plugin_that_changes_the_output_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An assert that is appended unread can; here the engine is made to trust it."""

    def trusting(*guests: Any, **options: Any) -> Any:
        return engine_with(*guests, **{**options, "trusted": ["under-test"]})

    class Sure(Again):
        def propose(self, view: Any) -> Any:
            ids = (1, 2, 3)
            return Proposal(ids, Policy.ASSERT, "x") if view.length % 5 == 0 else None

    monkeypatch.setattr("mlxfill_testing.conformance.lossless.engine_with", trusting)
    with pytest.raises(ConformanceError, match=r"with a \w+ cache, .* changed the output: \["):
        check_proposal_source(Sure)


def test_ctrl_c_is_not_a_finding() -> None:
    class Stopped(Again):
        def propose(self, _view: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_proposal_source(Stopped)
