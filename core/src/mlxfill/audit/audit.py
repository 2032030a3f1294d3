"""Checks a run against plain decoding: every proposal beside what the model itself would say."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import asdict, frozen

from mlxfill.audit.replay import Replay, gap_moved
from mlxfill.contracts import Policy
from mlxfill.errors import InputError
from mlxfill.model.reading import row
from mlxfill.request.results import SAMPLED, Result, finite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mlxfill.audit.replay import Choice
    from mlxfill.contracts import Event, Fault, Request
    from mlxfill.decode.run import Run
    from mlxfill.decode.runstate import RunState
    from mlxfill.forward.runner import TargetRunner
    from mlxfill.request.options import Options


@frozen
class Proposed:
    """One proposed token that the model judged, or that entered unread.

    ``position`` in the session, ``generated`` tokens before it.  ``model``: the model's own choice
    there.  ``margin`` and ``behind``: by how much that leads over the second, and over
    ``proposed`` (see ``Choice`` for units).  ``entered``: whether ``proposed`` is in the text.
    """

    position: int
    generated: int
    plugin: str
    origin: str
    policy: Policy
    proposed: int
    model: int
    margin: float | None
    behind: float | None
    entered: bool

    @property
    def agrees(self) -> bool:
        """Whether the model would have written the same."""
        return self.proposed == self.model

    def as_dict(self, decode: Callable[..., str]) -> dict[str, Any]:
        """JSON-ready, see ``Audit.as_dict``."""
        return {
            **asdict(self),
            "policy": str(self.policy),
            "proposed": _readable(self.proposed, decode),
            "model": _readable(self.model, decode),
            "agrees": self.agrees,
            "margin": finite(self.margin),
            "behind": finite(self.behind),
        }


@frozen
class Difference:
    """Where the text first is not what plain decoding would have written."""

    position: int
    generated: int
    origin: str
    token: int
    model: int
    behind: float | None
    noise: float

    @property
    def rounding(self) -> bool:
        """Whether the noise of this precision explains it."""
        return self.behind is not None and self.behind <= self.noise

    def as_dict(self, decode: Callable[..., str]) -> dict[str, Any]:
        """JSON-ready, see ``Audit.as_dict``."""
        return {
            "position": self.position,
            "generated": self.generated,
            "origin": self.origin,
            "token": _readable(self.token, decode),
            "model": _readable(self.model, decode),
            "behind": finite(self.behind),
            "rounding": self.rounding,
        }


@frozen
class Audit:
    """A run and what plain decoding says to it.

    ``noise``: how far the distance of two scores moves between forwards of one id and of several,
    measured on this very text.  ``caches``: the same between the caches that the run left and
    those of plain decoding, at the next token; None when there are none to compare.
    """

    result: Result
    proposed: Sequence[Proposed]
    difference: Difference | None
    noise: float
    caches: float | None

    @property
    def identical(self) -> bool:
        """Whether plain decoding writes the same tokens."""
        return self.difference is None

    def as_dict(self, decode: Callable[..., str]) -> dict[str, Any]:
        """JSON-ready.  ``decode([id])`` gives the text of a token; no number is infinite."""
        return {
            "identical": self.identical,
            "difference": self.difference and self.difference.as_dict(decode),
            "noise": self.noise,
            "caches": self.caches,
            "proposed": [each.as_dict(decode) for each in self.proposed],
            "result": self.result.as_dict(),
        }


def _readable(token: int, decode: Callable[..., str]) -> dict[str, Any]:
    return {"id": token, "text": decode([token])}


class AuditedRun:
    """A run whose proposals are noted, and their check once the run has ended.

    ::

        audited = engine.audited(prompt)
        audited.run.result()                 # or by a ``RowScheduler``
        for _ in audited.steps():            # a forward each
            ...                              # others may have their turn
        print(audited.found.identical)

    The check costs a plain run of the same length and a pass over the text in windows.
    """

    def __init__(
        self,
        run: Run,
        events: Sequence[Event],
        forwarder: Callable[[Request, Options, list[Fault]], TargetRunner],
    ) -> None:
        """``events``: where those of the run arrive; ``forwarder`` makes another one for it.

        :raises InputError: the run does not generate token by token.
        """
        method = run.state.method
        if method is not None:
            run.close()
            raise InputError(f"{method.name!r} does not generate token by token: no audit")
        self.run = run
        self._events, self._forwarder = events, forwarder
        self._found: Audit | None = None

    @property
    def found(self) -> Audit:
        """What was found, after the last step."""
        if self._found is None:
            raise InputError("the run has not been audited: go through all of steps()")
        return self._found

    def steps(self) -> Iterator[None]:
        """Forward the text plainly, bit by bit, and compare.

        :raises Exception: whatever ended the run, if it failed.
        """
        result = self.run.result()
        run = self.run.state
        make = partial(self._forwarder, run.request, run.options, [])
        auditor = _Auditor(run, self._events, make)
        steps, over = auditor.steps(result), False
        adapters = run.forwarder.target.adapters
        while not over:
            adapters.switch(self.run.options.adapters)
            try:
                over = next(steps, self) is self
            finally:  # others have their turn
                adapters.switch(None)
            if not over:
                yield
        self._found = auditor.found


class _Auditor:
    def __init__(
        self, run: RunState, events: Sequence[Event], forwarder: Callable[[], TargetRunner]
    ) -> None:
        self._run, self._forwarder = run, forwarder
        self._prompt = list(run.request.prompt_ids)
        self._tokens = run.session.tokens[len(self._prompt) :]
        self._eos = run.ending.eos if run.ending else None
        self._offers = [event.data for event in events if event.kind == "proposal"]
        self.found: Audit | None = None

    def steps(self, result: Result) -> Iterator[None]:
        if not self._tokens and self._eos is None:
            self.found = Audit(result, (), None, 0.0, None)
            return
        embeddings = self._run.options.input_embeddings
        replay = Replay(self._forwarder, self._prompt, self._tokens, embeddings)
        yield from replay.prefilling()
        choices = []
        for choice in replay.choices(self._asked(result)):
            choices.append(choice)
            yield
        self.found = Audit(
            result,
            list(self._proposed(choices)),
            self._difference(result, choices, replay.noise),
            replay.noise,
            self._caches(replay),
        )

    # --- what is compared ---------------------------------------------------------------

    def _asked(self, result: Result) -> list[set[int]]:
        """For each position of the text, and the one after it, ids whose distance is wanted."""
        asked = [{token} for token in self._text(result)]
        asked += [set() for _ in range(len(asked), len(self._tokens) + 1)]
        for data in self._offers:
            for at, token in enumerate(_decided(data), data["generated"]):
                asked[at].add(token)
        return asked

    def _text(self, result: Result) -> list[int]:
        """Tokens that the caller got, and the EOS that ended them."""
        whole = len(result.tokens) == len(self._tokens) and self._eos is not None
        return [*result.tokens, *([self._eos] if whole and self._eos is not None else ())]

    def _proposed(self, choices: Sequence[Choice]) -> Iterator[Proposed]:
        for data in self._offers:
            for at, token in enumerate(_decided(data)):
                choice = choices[data["generated"] + at]
                yield Proposed(
                    position=data["position"] + at,
                    generated=data["generated"] + at,
                    plugin=data["plugin"],
                    origin=data["origin"],
                    policy=Policy(data["policy"]),
                    proposed=token,
                    model=choice.token,
                    margin=choice.margin,
                    behind=choice.behind[token],
                    entered=at < data["accepted"],
                )

    def _difference(
        self, result: Result, choices: Sequence[Choice], noise: float
    ) -> Difference | None:
        origins = [*result.origins, SAMPLED]
        for at, token in enumerate(self._text(result)):
            choice = choices[at]
            if choice.token != token:
                position = len(self._prompt) + at
                behind = choice.behind[token]
                return Difference(position, at, origins[at], token, choice.token, behind, noise)
        return None

    def _caches(self, replay: Replay) -> float | None:
        """Let both sides answer to the same further token."""
        run, plain = self._run, replay.plain
        run.fill_caches()
        full = [*self._prompt, *self._tokens, *(() if self._eos is None else (self._eos,))]
        if full[plain.held :]:
            plain.append(full[plain.held :])
        if run.forwarder.held != plain.held:
            return None
        probe = row(full[-1:])[None]
        with mx.stream(plain.stream):
            ours, theirs = (
                f.target.forward(probe, f.caches)[0, -1] for f in (run.forwarder, plain)
            )
            return gap_moved(ours, theirs)


def _decided(data: Mapping[str, Any]) -> list[int]:
    """The ids of a proposal that entered unread or that the model judged."""
    ids: list[int] = data["proposed"]
    return ids if data["policy"] == Policy.ASSERT else ids[: data["judged"]]
