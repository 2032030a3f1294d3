"""What a set of plugins would bring, added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from mlxfill_bench.forecast.replies import KINDS, Reply
from mlxfill_bench.forecast.running import ALONE, Foreseen
from mlxfill_bench.sessions import name_of

ALL = "all"


@frozen
class Share:
    """Figures of one arm for one kind of tokens, or all.

    ``speed``: how many times as fast as one forward a token, by the cost curve; ``injected`` and
    ``accepted``: shares of the tokens that plugins asserted, and guessed.
    """

    arm: str
    kind: str
    tokens: int
    tokens_per_forward: float
    speed: float
    injected: float
    accepted: float


@frozen
class Stretch:
    """Tokens in a row that nobody foresaw: where, how many, and which."""

    session: str
    turn: int
    start: int
    ids: tuple[int, ...]

    @property
    def name(self) -> str:
        """Of the reply."""
        return name_of(self.session, self.turn)


def shares(found: Mapping[str, Sequence[Foreseen]]) -> list[Share]:
    """A line for each arm, then one for each kind of tokens in it, if there are several."""
    lines = []
    for arm, replies in found.items():
        kinds = [kind for kind in KINDS if any(kind in each.reply.kinds for each in replies)]
        lines += [_share(arm, kind, replies) for kind in [ALL, *(kinds if len(kinds) > 1 else ())]]
    return lines


def _share(arm: str, kind: str, replies: Sequence[Foreseen]) -> Share:
    forwards, steps, origins = 0.0, 0.0, Counter[str]()
    asserted = 0
    for each in replies:
        forwards += _of(each.forwards, kind)
        steps += _of(each.steps, kind)
        for at, origin in enumerate(each.origins):
            if kind in {ALL, each.reply.kinds[at]}:
                origins[origin] += 1
                asserted += at in each.injected
    tokens = origins.total()
    return Share(
        arm=arm,
        kind=kind,
        tokens=tokens,
        tokens_per_forward=tokens / forwards if forwards else 0.0,
        speed=tokens / steps if steps else 0.0,
        injected=asserted / tokens if tokens else 0.0,
        accepted=(tokens - origins[ALONE] - asserted) / tokens if tokens else 0.0,
    )


def _of(counts: Mapping[str, float], kind: str) -> float:
    return sum(counts.values()) if kind == ALL else counts.get(kind, 0)


def unforeseen(replies: Sequence[Foreseen], most: int) -> list[Stretch]:
    """The longest stretches that nobody foresaw, longest first."""
    found = (stretch for each in replies for stretch in _stretches(each.reply, each.origins))
    return sorted(found, key=lambda stretch: -len(stretch.ids))[:most]


def _stretches(reply: Reply, origins: Sequence[str]) -> Iterator[Stretch]:
    start = 0
    for at in range(len(origins) + 1):
        if at == len(origins) or origins[at] != ALONE:
            if at > start:
                yield Stretch(reply.session, reply.turn, start, reply.ids[start:at])
            start = at + 1


def as_dict(found: Mapping[str, Sequence[Foreseen]]) -> dict[str, Any]:
    """The figures, ready for JSON."""
    import attrs

    strayed = {arm: sum(each.strayed for each in replies) for arm, replies in found.items()}
    return {"arms": [attrs.asdict(share) for share in shares(found)], "strayed": strayed}
