from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from mlxfill import Limits, Request, Sampling
from mlxfill_fill_echo import EchoSettings, EchoSource, Memory, Sessions

if TYPE_CHECKING:
    import pytest

SETTINGS = EchoSettings(k=2)
IDS = st.lists(st.integers(0, 3), max_size=40)


class Tokenizer:
    """Stands for an engine: sessions of two engines have nothing in common."""


TOKENIZER = Tokenizer()


def request(*ids: int, session: str | None = "a", tokenizer: Any = TOKENIZER) -> Request:
    return Request(
        prompt_ids=ids,
        prompt_text="",
        messages=None,
        tools=None,
        sampling=Sampling(),
        limits=Limits(max_tokens=10),
        tokenizer=tokenizer,
        render=lambda *_: "",
        eos_ids=frozenset(),
        session=session,
    )


def offered(memory: Memory, settings: EchoSettings = SETTINGS) -> tuple[int, ...]:
    unused: Any = None
    proposal = EchoSource(memory, settings, frozenset()).propose(unused)
    return proposal.ids if proposal else ()


# --- one session -----------------------------------------------------------------


def test_a_session_knows_what_its_earlier_replies_said() -> None:
    sessions = Sessions()
    sessions.open(request(1, 2), SETTINGS).live.extend([3, 4, 5, 6])
    assert offered(sessions.open(request(7, 8, 4, 5), SETTINGS)) == ()  # only one id followed
    assert offered(sessions.open(request(7, 8, 3, 4), SETTINGS)) == (5, 6)


def test_a_request_without_a_session_leaves_nothing_behind() -> None:
    sessions = Sessions()
    sessions.open(request(1, 2, 3, 4, session=None), SETTINGS)
    assert offered(sessions.open(request(9, 1, 2, session=None), SETTINGS)) == ()
    assert sessions.sizes() == {}


def test_sessions_do_not_know_each_other() -> None:
    sessions = Sessions()
    sessions.open(request(1, 2, 3, 4, session="a"), SETTINGS)
    assert offered(sessions.open(request(9, 1, 2, session="b"), SETTINGS)) == ()
    assert offered(sessions.open(request(9, 1, 2, session="a"), SETTINGS)) == (3, 4)


def test_the_same_name_in_another_engine_is_another_session() -> None:
    sessions, other = Sessions(), Tokenizer()
    sessions.open(request(1, 2, 3, 4), SETTINGS)
    assert offered(sessions.open(request(9, 1, 2, tokenizer=other), SETTINGS)) == ()
    assert offered(sessions.open(request(9, 1, 2), SETTINGS)) == (3, 4)


def test_an_engine_is_known_by_more_than_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxfill_fill_echo.sessions.id", lambda _: 7, raising=False)
    sessions, tokenizer = Sessions(), Tokenizer()
    sessions.open(request(1, 2, 3, 4, tokenizer=tokenizer), SETTINGS)
    del tokenizer
    gc.collect()
    newcomer = Tokenizer()  # where the old one was
    assert offered(sessions.open(request(9, 1, 2, tokenizer=newcomer), SETTINGS)) == ()


def test_other_settings_start_a_session_anew() -> None:
    sessions = Sessions()
    sessions.open(request(1, 2, 3, 4), SETTINGS)
    assert offered(sessions.open(request(9, 1, 2), evolve(SETTINGS, k=3))) == ()


def test_text_that_is_rendered_again_is_no_second_occurrence() -> None:
    sessions, settings = Sessions(), evolve(SETTINGS, assert_=True)
    first = sessions.open(request(1, 2), settings)
    first.live.extend([50, 3, 4, 5, 6, 9])  # 50: reasoning that the next prompt leaves out
    again = sessions.open(request(1, 2, 3, 4, 5, 6, 9, 7, 3, 4), settings)
    unused: Any = None
    proposal = EchoSource(again, settings, frozenset([9])).propose(unused)
    assert proposal is not None
    assert (proposal.ids, str(proposal.policy)) == ((5, 6, 9), "verify")


def test_what_a_prompt_left_out_is_never_asserted() -> None:
    sessions, settings = Sessions(), evolve(SETTINGS, assert_=True)
    sessions.open(request(3, 4, 5, 9, 7, 3, 4, 5, 9), settings)
    memory = sessions.open(request(8, 3, 4), settings)
    unused: Any = None
    proposal = EchoSource(memory, settings, frozenset([9])).propose(unused)
    assert proposal is not None
    assert (proposal.ids, str(proposal.policy)) == ((5, 9), "verify")


def test_what_a_prompt_left_out_is_known_from_its_first_token_on() -> None:
    sessions = Sessions()
    sessions.open(request(1, 2), SETTINGS).live.extend([50, 3, 4, 5])
    assert offered(sessions.open(request(1, 2, 60, 2, 50), SETTINGS)) == (3, 4, 5)


@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=5), st.integers(2, 4))
def test_the_live_text_is_the_newest_prompt_and_reply(
    turns: list[tuple[list[int], list[int]]], k: int
) -> None:
    settings, sessions = EchoSettings(k=k), Sessions()
    for prompt, reply in turns:
        memory = sessions.open(request(*prompt), settings)
        memory.live.extend(reply)
        fresh = Memory(settings)
        fresh.begin([*prompt, *reply])
        assert memory.live.ids == fresh.live.ids
        assert memory.live.after(memory.live.tail, 99) == fresh.live.after(fresh.live.tail, 99)


def test_sizes_add_up_over_engines() -> None:
    sessions, other = Sessions(), Tokenizer()
    sessions.open(request(1, 2, 3), SETTINGS)
    sessions.open(request(1, 2, 3, 4, tokenizer=other), SETTINGS)
    assert sessions.sizes() == {"a": 7}


def test_sessions_of_an_engine_that_is_gone_are_forgotten() -> None:
    sessions, other = Sessions(), Tokenizer()
    sessions.open(request(1, 2, 3, session="old", tokenizer=other), SETTINGS)
    del other
    gc.collect()
    sessions.open(request(4, 5, session="new"), SETTINGS)
    assert sessions.sizes() == {"new": 2}


# --- bounds ----------------------------------------------------------------------


def test_the_session_unused_for_longest_is_forgotten_first() -> None:
    sessions, settings = Sessions(), evolve(SETTINGS, max_sessions=2)
    for name in "abac":
        sessions.open(request(1, 2, 3, session=name), settings)
    assert list(sessions.sizes()) == ["a", "c"]


def test_all_sessions_together_have_a_bound_in_tokens() -> None:
    sessions, settings = Sessions(), evolve(SETTINGS, session_tokens=25)
    for name in "abc":
        sessions.open(request(*range(10), session=name), settings)
    assert sessions.sizes() == {"b": 10, "c": 10}
    sessions.open(request(*range(30), session="d"), settings)
    assert sessions.sizes() == {"d": 30}


def test_what_prompts_left_out_has_a_bound_in_tokens() -> None:
    sessions, settings = Sessions(), evolve(SETTINGS, index_max=50)
    for turn in range(100):
        sessions.open(request(*range(turn, turn + 20)), settings)
        assert sessions.sizes()["a"] <= 20 + 50


# --- erasing ---------------------------------------------------------------------


def test_an_erased_session_is_gone() -> None:
    sessions = Sessions()
    running = sessions.open(request(1, 2, 3, 4), SETTINGS)
    sessions.open(request(1, 2, 3, 4, session="b"), SETTINGS)
    assert sessions.forget("a")
    assert not sessions.forget("a")
    assert len(running) == 0
    assert offered(sessions.open(request(9, 1, 2), SETTINGS)) == ()
    assert offered(sessions.open(request(9, 1, 2, session="b"), SETTINGS)) == (3, 4)
    sessions.forget_all()
    assert sessions.sizes() == {}


def test_the_newest_request_takes_a_session_over() -> None:
    sessions = Sessions()
    older = sessions.open(request(1, 2, 3, 4), SETTINGS)
    newer = sessions.open(request(1, 2, 3, 4, 1, 2), SETTINGS)
    older.live.extend([7, 7, 7, 1, 2])
    assert offered(newer) == (3, 4, 1, 2)
    assert offered(older) == ()
