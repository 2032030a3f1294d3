"""The harness on arms of every kind: it must find harm, slowness and faults, and nothing else."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, evolve

import mlxfill
from mlxfill_bench import SHIPPED, Replayed, Session, Verdict, read_sessions, replay, verdicts
from mlxfill_testing import Guest, engine_with

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill import Engine, Proposal, Request, TokenView

SESSIONS = read_sessions(SHIPPED)[:2]
TURNS = sum(len(session.turns()) for session in SESSIONS)
BRIEFLY: dict[str, Any] = {"rounds": 2, "max_tokens": 6}
"""For what does not depend on how the replies go on."""


@define
class Source:
    """Offers nothing.  Kinds below change one thing."""

    request: Request
    name: str = "source"

    def propose(self, view: TokenView) -> Proposal | None:  # noqa: ARG002
        return None

    def observe(self, ids: Sequence[int]) -> None:
        pass

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        pass


class Corrupting(Source):
    """Asserts two words of the prompt in the middle of every reply."""

    def propose(self, view: TokenView) -> Proposal | None:
        if view.length != len(self.request.prompt_ids) + 12:
            return None
        return mlxfill.Proposal(self.request.prompt_ids[5:7], mlxfill.Policy.ASSERT, "corrupt")


class Raising(Source):
    """Fails in every reply."""

    def propose(self, view: TokenView) -> Proposal | None:  # noqa: ARG002
        raise RuntimeError("out of order")


class Knowing(Source):
    """Is right about some tokens: what the prompt has after the last one that is the newest."""

    def propose(self, view: TokenView) -> Proposal | None:
        ids, last = self.request.prompt_ids, view.tail(1)[0]
        at = max((i for i, token in enumerate(ids[:-3]) if token == last), default=None)
        if at is None:
            return None
        return mlxfill.Proposal(ids[at + 1 : at + 4], mlxfill.Policy.VERIFY, "known")


class Clock:
    """Time that goes on only when a source is asked."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def ticking(self, seconds: float) -> type[Source]:
        """A source that takes ``seconds`` a token."""
        clock = self

        class Ticking(Source):
            def propose(self, view: TokenView) -> Proposal | None:  # noqa: ARG002
                clock.now += seconds
                return None

        return Ticking


def arm(plain: Engine, kind: type[Source], guest: Guest | None = None) -> Engine:
    """An engine on the tiny model with one source, whose asserts count."""
    guest = evolve(guest or Guest(), sources=[kind])
    return engine_with(plain.model, guest, tokenizer=plain.tokenizer, trusted=["guest"])


@pytest.fixture(scope="module")
def neutral(plain: Engine) -> list[Replayed]:
    """A replay with an arm that changes nothing."""
    return replayed(plain, Source)


def verdict_on(plain: Engine, kind: type[Source], **options: Any) -> Verdict:
    (verdict,) = verdicts(replayed(plain, kind, **options))
    return verdict


def replayed(
    plain: Engine, kind: type[Source], sessions: Sequence[Session] = SESSIONS, **options: Any
) -> list[Replayed]:
    with arm(plain, kind) as engine:
        return replay(sessions, {"plain": plain, "arm": engine}, **{"rounds": 1, **options})


# --- harm ----------------------------------------------------------------------------


def test_an_arm_that_corrupts_replies_is_worse(plain: Engine) -> None:
    verdict = verdict_on(plain, Corrupting)
    harm = verdict.harm
    assert harm.verdict == "worse"
    assert harm.worse >= 6
    assert harm.p < 0.05 < harm.at_most
    assert harm.identical == 0
    assert verdict.figures.injected > 0
    assert len(verdict.changes) == harm.worse
    assert all(change.arm != change.plain == change.recorded for change in verdict.changes)


def test_an_arm_that_is_verified_does_what_plain_decoding_does(plain: Engine) -> None:
    verdict = verdict_on(plain, Knowing)
    assert (verdict.harm.worse, verdict.harm.better) == (0, 0)
    assert verdict.harm.identical == verdict.harm.turns == TURNS
    assert verdict.changes == ()
    assert verdict.figures.acceptance is not None
    assert 0 < verdict.figures.acceptance < 1
    assert verdict.figures.tokens_per_forward > 1
    assert verdict.figures.injected == 0


def test_few_turns_leave_it_undecided_and_a_wider_margin_does_not(neutral: list[Replayed]) -> None:
    (strict,), (lenient,) = verdicts(neutral), verdicts(neutral, margin=0.5)
    assert (strict.harm.verdict, lenient.harm.verdict) == ("undecided", "harmless")
    assert strict.harm.at_most == lenient.harm.at_most


def test_where_plain_decoding_is_never_right_nothing_is_shown(neutral: list[Replayed]) -> None:
    played = [evolve(turn, recorded=evolve(turn.recorded, calls=("x",))) for turn in neutral]
    (verdict,) = verdicts(played, margin=0.9)
    assert verdict.harm.plain_right == 0
    assert verdict.harm.at_most == 1
    assert verdict.harm.verdict == "undecided"


def test_an_arm_whose_plugin_was_set_aside_is_faulty(plain: Engine) -> None:
    verdict = verdict_on(plain, Raising)
    assert verdict.harm.verdict == "faulty"
    (fault,) = verdict.figures.faults
    assert "guest" in fault
    assert "out of order" in fault


def test_an_option_that_the_template_never_reads_makes_no_arm_faulty(plain: Engine) -> None:
    asked = [SESSIONS[0], evolve(SESSIONS[1], template_options={"nobody": 1})]
    with arm(plain, Source) as engine:
        played = replay(asked, {"plain": plain, "arm": engine}, rounds=1, max_tokens=1)
    (verdict,) = verdicts(played)
    assert verdict.harm.verdict != "faulty"
    assert verdict.figures.faults == ()


class Noting(Source):
    """Nothing fails: the engine that it runs in has something to say."""


def test_what_the_engine_says_of_a_request_makes_no_arm_faulty(plain: Engine) -> None:
    """Whatever it is about: calls that the template leaves out, a cache without room."""
    blind = copy.deepcopy(plain.tokenizer._tokenizer)
    blind.chat_template = "{% for m in messages %}{{ m.content or '' }}\n{% endfor %}"
    guest = Guest(sources=[Noting])
    with (
        engine_with(plain.model, tokenizer=blind) as first,
        engine_with(plain.model, guest, tokenizer=blind) as engine,
    ):
        engine.faults += [
            mlxfill.Fault("elsewhere", "start", "a plugin that is no part of the arm"),
            mlxfill.Fault("guest", "draft", "no more than by chance", notice=True),
        ]
        played = replay(SESSIONS[:1], {"plain": first, "arm": engine}, rounds=1, max_tokens=1)
    (verdict,) = verdicts(played)
    assert (verdict.harm.verdict, verdict.figures.faults) == ("undecided", ())
    notes = "\n".join(verdict.figures.notes)
    assert "fault: elsewhere (start): " in notes
    assert "note: guest (draft): no more than by chance" in notes
    assert "note: engine (messages): the chat template writes no tool calls" in notes


def test_one_wrong_round_makes_a_turn_wrong(neutral: list[Replayed]) -> None:
    first = neutral[0]
    (answer,) = first.answers["arm"]
    wrong = evolve(answer, deed=evolve(answer.deed, calls=("x",)))
    answers = {"plain": [first.answers["plain"][0]] * 2, "arm": [answer, wrong]}
    assert not evolve(first, answers=answers).right("arm")
    assert evolve(first, answers={"arm": [answer, answer]}).right("arm")


# --- speed ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "ratio", "verdict"),
    [(2.0, 0.5, "slower"), (0.5, 2.0, "faster"), (1, 1, "undecided")],
)
def test_speed_is_what_the_clock_says(
    plain: Engine, seconds: float, ratio: float, verdict: str
) -> None:
    clock = Clock()
    with arm(plain, clock.ticking(1.0)) as first, arm(plain, clock.ticking(seconds)) as second:
        played = replay(SESSIONS, {"plain": first, "arm": second}, clock=clock, **BRIEFLY)
    (found,) = verdicts(played)
    speed = found.speed
    assert (speed.ratio, speed.low, speed.high) == (ratio, ratio, ratio)
    assert speed.verdict == verdict
    assert [each.ratio for each in found.by_session.values()] == [ratio] * len(SESSIONS)
    assert list(found.by_session) == [session.id for session in SESSIONS]


def test_a_handful_of_pairs_decides_nothing(plain: Engine) -> None:
    clock = Clock()
    short = [evolve(SESSIONS[1], messages=SESSIONS[1].messages[:3])]
    with arm(plain, clock.ticking(1.0)) as first, arm(plain, clock.ticking(2.0)) as second:
        arms = {"plain": first, "arm": second}
        (five,) = verdicts(replay(short, arms, rounds=5, max_tokens=4, clock=clock))
        (six,) = verdicts(replay(short, arms, rounds=6, max_tokens=4, clock=clock))
    assert (five.speed.verdict, six.speed.verdict) == ("undecided", "slower")


# --- what is asked -------------------------------------------------------------------


def test_every_arm_answers_every_turn_after_what_was_recorded(plain: Engine) -> None:
    asked: dict[str, Counter[str]] = {"one": Counter(), "two": Counter()}

    def recording(name: str, kind: type[Source]) -> Any:
        def make(request: Request) -> Source:
            asked[name][request.prompt_text] += 1
            return kind(request)

        return make

    one = engine_with(
        plain.model, Guest(sources=[recording("one", Source)]), tokenizer=plain.tokenizer
    )
    two = engine_with(
        plain.model,
        Guest(sources=[recording("two", Corrupting)]),
        tokenizer=plain.tokenizer,
        trusted=["guest"],
    )
    with one, two:
        played = replay(SESSIONS, {"plain": plain, "one": one, "two": two}, rounds=2, max_tokens=13)
    first, *_ = asked["one"]
    expected = Counter(dict.fromkeys(asked["one"], 2))
    expected[first] += 1  # to warm up
    assert asked["one"] == asked["two"] == expected
    assert len(asked["one"]) == len(played) == TURNS
    assert all(len(answers) == 2 for turn in played for answers in turn.answers.values())


def test_arms_take_turns_in_going_first(plain: Engine) -> None:
    order: list[str] = []

    def named(name: str) -> Guest:
        def make(request: Request) -> Source:
            order.append(name)
            return Source(request)

        return Guest(sources=[make])

    engines = {n: engine_with(plain.model, named(n), tokenizer=plain.tokenizer) for n in "ab"}
    replay(SESSIONS[:1], {"plain": plain, **engines}, **BRIEFLY)
    for engine in engines.values():
        engine.close()
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert set(map(frozenset, pairs)) == {frozenset("ab")}
    assert {first for first, _ in pairs} == {"a", "b"}


def test_a_kept_cache_changes_nothing_but_the_time(plain: Engine) -> None:
    warm, cold = (
        replayed(plain, Knowing, SESSIONS[:1], max_tokens=8, cold=cold) for cold in (False, True)
    )
    for one, other in zip(warm, cold, strict=True):
        for name in ("plain", "arm"):
            assert one.answers[name][0].tokens == other.answers[name][0].tokens


def test_a_template_that_forgets_earlier_turns_is_replayed_all_the_same(plain: Engine) -> None:
    forgetful = copy.deepcopy(plain.tokenizer._tokenizer)
    forgetful.chat_template = "{{ messages[-1].content }}\n"
    with engine_with(plain.model, tokenizer=forgetful) as engine:
        played = replay(SESSIONS[:1], {"plain": engine}, rounds=1, max_tokens=4)
    assert len(played) == len(SESSIONS[0].turns())


def test_the_limit_of_tokens_holds(plain: Engine) -> None:
    played = replay(SESSIONS[:1], {"plain": plain, "arm": plain}, rounds=1, max_tokens=3)
    assert {len(answer.tokens) for turn in played for answer in turn.answers["arm"]} == {3}


def test_progress_is_told_once_a_turn_and_round(plain: Engine) -> None:
    told: list[None] = []
    replay(
        SESSIONS[:1],
        {"plain": plain, "arm": plain},
        rounds=2,
        max_tokens=1,
        on_turn=lambda: told.append(None),
    )
    assert len(told) == 2 * len(SESSIONS[0].turns())


def test_a_turn_that_cannot_be_asked_is_named_before_others_are_answered(plain: Engine) -> None:
    messages = ({"role": "user", "content": 5}, {"role": "assistant", "content": "x"})
    sessions = [SESSIONS[0], Session("odd", messages)]

    def answered() -> None:
        pytest.fail("a turn was answered")

    with pytest.raises(mlxfill.InputError, match=r"^session odd, turn 1: message"):
        replay(sessions, {"plain": plain, "arm": plain}, rounds=1, on_turn=answered)


def test_no_rounds_are_refused(plain: Engine) -> None:
    with pytest.raises(mlxfill.InputError, match="at least 1, not 0"):
        replay(SESSIONS, {"plain": plain}, rounds=0)
