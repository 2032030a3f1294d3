"""Whether one request hears what another one said: users share a process, never their text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen

from mlxfill_testing.conformance.sessions.playing import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRIALS = 3
"""So often a secret must be heard: what a plugin draws by lot it hits once."""
BEGINNING, SECRET, BEHIND = 8, 50, 62
"""Ids with which both requests begin; the first secret; the id that follows each one."""


@frozen
class Talk:
    """What one request says: its prompt and the reply that enters, in the words of an opening."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    opening: str = ""
    session: str | None = None


def overheard(hear: Callable[[Talk], set[int]], openings: tuple[str, ...] = ("",)) -> str:
    """How a request was offered what only another one said; "" where none was.

    :param hear: plays a request to its end and returns the ids that were offered in it.
    :param openings: those of the kit's requests to try.
    """
    for opening in openings:
        for sessions in ((None, None), ("one", "another")):
            for way in (_from_the_prompt, _from_the_reply):
                told = _leak(hear, way, opening, sessions)
                if told:
                    return told
    return ""


def _leak(
    hear: Callable[[Talk], set[int]],
    way: Callable[[int], tuple[Talk, Talk, int]],
    opening: str,
    sessions: tuple[str | None, str | None],
) -> str:
    """In words, where every secret of the first request is offered to the second one."""
    words = ""
    for trial in range(TRIALS):
        teller, listener, secret = way(trial)
        teller = evolve(teller, opening=opening, session=sessions[0])
        listener = evolve(listener, opening=opening, session=sessions[1])
        before = hear(listener)
        hear(teller)
        if secret not in hear(listener) - before:
            return ""
        words = words or (
            f"offers to one request what another one said: after a request with"
            f" {shown([*teller.prompt, *teller.reply])}, one with"
            f" {shown([*listener.prompt, *listener.reply])} is offered {secret}, and it was not"
            " before; requests of different users share a process: keep what is known with the"
            " request"
        )
    return words


def _beginning(trial: int) -> Iterator[int]:
    return iter(range(trial * BEGINNING, (trial + 1) * BEGINNING))


def _from_the_prompt(trial: int) -> tuple[Talk, Talk, int]:
    """The secret stands in the first one's prompt; the second one begins alike."""
    ids, secret = tuple(_beginning(trial)), SECRET + trial
    teller = Talk((*ids, secret, BEHIND) * 2, (*ids, secret, BEHIND))
    return teller, Talk((BEHIND + 1, *ids[:4]), ids[4:]), secret


def _from_the_reply(trial: int) -> tuple[Talk, Talk, int]:
    """Both ask the same; the secret stands in the reply to the first one."""
    ids, secret = tuple(_beginning(TRIALS + trial)), SECRET + TRIALS + trial
    return Talk(ids, (secret, BEHIND, *ids, secret, BEHIND, *ids)), Talk(ids, ()), secret
