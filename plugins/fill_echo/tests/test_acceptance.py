from __future__ import annotations

from mlxfill_fill_echo.acceptance import Acceptance

WRONG = 999


def after(rounds: int, *, held: int, offered: int = 12) -> Acceptance:
    """Offers of which the first ``held`` ids came true."""
    acceptance = Acceptance()
    for _ in range(rounds):
        ids = list(range(offered))
        acceptance.follow(ids)
        acceptance.see([*ids[:held], WRONG] if held < offered else ids)
    return acceptance


def test_offers_that_hold_grow_and_those_that_break_shrink() -> None:
    new = Acceptance().length()
    lengths = [after(20, held=held).length() for held in (0, 3, 6, 12)]
    assert lengths == sorted(lengths)
    assert lengths[0] < new < lengths[-1]
    assert lengths[0] == 4
    assert lengths[-1] >= 20


def test_an_offer_is_about_as_long_as_offers_hold() -> None:
    assert 4 <= after(50, held=6).length() <= 8


def test_what_was_not_judged_counts_as_the_text_turned_out() -> None:
    # Offered at every token of a copy, as in a cold loop: the first is followed to its end.
    acceptance, text = Acceptance(), list(range(400))
    for at in range(300):
        acceptance.follow(text[at : at + 8])
        acceptance.see([text[at]])
    assert acceptance.length() >= 16


def test_recovers_from_a_bad_time() -> None:
    acceptance = after(50, held=0)
    for _ in range(8):
        ids = list(range(acceptance.length()))
        acceptance.follow(ids)
        acceptance.see(ids)
    assert acceptance.length() > 32


def test_a_short_offer_that_held_says_nothing_against_long_ones() -> None:
    acceptance = after(20, held=12)
    before = acceptance.length()
    acceptance.follow([1, 2])
    acceptance.see([1, 2])
    assert acceptance.length() == before


def test_dropped_offers_teach_nothing() -> None:
    acceptance = Acceptance()
    before = acceptance.length()
    acceptance.follow([1, 2, 3])
    acceptance.drop()
    acceptance.see([4, 5, 6])
    assert acceptance.length() == before
