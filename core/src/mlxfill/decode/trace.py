"""What happens inside a request, as events: one for each proposal and each window.

``MLXFILL_TRACE=file.jsonl`` writes them to a file; plugins receive them through
``mlxfill_observe``.  A request that is not traced runs without any of this.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import asdict

from mlxfill.contracts import Event, Fault, Policy
from mlxfill.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mlxfill.forward.runner import VerifyResult
    from mlxfill.forward.watched import WatchedRunner, WindowRecord
    from mlxfill.proposals.drafting import Drafting
    from mlxfill.proposals.session import Offer, Session

    Sink = Callable[[Event], None]

VARIABLE = "MLXFILL_TRACE"


class Trace:
    """Turns what one request reports into events.

    A ``proposal`` names plugin, origin and policy, ``position`` in the session and ``generated``
    tokens before it, the ``proposed`` ids, how many of them were ``judged`` and ``accepted``, and
    the first ``mismatch``: its position, and id and text of both sides.  A ``round`` is one window.
    """

    def __init__(
        self,
        session: Session,
        forwarder: WatchedRunner,
        tokenizer: TokenizerWrapper,
        emit: Sink,
        report: Callable[[Fault], None],
    ) -> None:
        """``emit`` takes the events, ``report`` a fault of the engine itself."""
        self._session, self._tokenizer = session, tokenizer
        self._emit, self._report = emit, report
        self._prompt = len(session.tokens)
        session.on_proposal, session.on_drafts = self._proposal, self._drafts
        forwarder.on_window, forwarder.on_misaligned = self._window, self._misaligned

    def _proposal(self, offer: Offer, accepted: int, judged: int, instead: int | None) -> None:
        asserted = offer.policy is Policy.ASSERT
        self._record(
            offer.seat.plugin,
            offer.proposal.origin,
            offer.policy,
            offer.ids,
            accepted,
            0 if asserted else judged,
            instead,
        )

    def _drafts(self, drafting: Drafting, ids: Sequence[int], judged: VerifyResult) -> None:
        accepted = judged.accepted
        missed = accepted < len(ids)
        self._record(
            drafting.drafter.plugin,
            drafting.origin,
            Policy.VERIFY,
            ids,
            accepted,
            accepted + missed,
            judged.sampled[accepted] if missed else None,
        )

    def _record(  # noqa: PLR0913, PLR0917 - the fields of one record
        self,
        plugin: str,
        origin: str,
        policy: Policy,
        ids: Sequence[int],
        accepted: int,
        judged: int,
        instead: int | None,
    ) -> None:
        position = len(self._session.tokens)
        mismatch = None
        if instead is not None:
            mismatch = {
                "position": position + accepted,
                "proposed": self._token(ids[accepted]),
                "model": self._token(instead),
            }
        data = {
            "plugin": plugin,
            "origin": origin,
            "policy": str(policy),
            "position": position,
            "generated": position - self._prompt,
            "proposed": list(ids),
            "judged": judged,
            "accepted": accepted,
            "mismatch": mismatch,
        }
        self._emit(Event("proposal", data))

    def _token(self, token: int) -> dict[str, Any]:
        return {"id": token, "text": self._tokenizer.decode([token])}

    def _window(self, window: WindowRecord) -> None:
        self._emit(Event("round", asdict(window)))

    def _misaligned(self, what: str) -> None:
        self._report(Fault("engine", "caches", what))


class TraceFile:
    """A JSON object a line: ``time`` (seconds since 1970), ``request``, ``kind``, and the data."""

    _requests = count(1)

    def __init__(self, path: str) -> None:
        """Append to the file at ``path``.  Raises ``InputError`` when that cannot be written."""
        self._path = Path(path)
        self._append("")

    def request(self) -> Sink:
        """Where the events of one more request go."""
        name = f"{os.getpid()}-{next(self._requests)}"
        return lambda event: self._write({"request": name, "kind": event.kind, **event.data})

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 6), **record}, ensure_ascii=False)
        self._append(line + "\n")

    def _append(self, text: str) -> None:
        # Opened each time: several engines and processes may share the file.
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            why = error.strerror or error
            raise InputError(f"{VARIABLE}={self._path} cannot be written: {why}") from error


class Tracing:
    """Who wants the events of an engine's requests: nobody, unless the environment says so.

    Raises ``InputError`` when the environment names a file that cannot be written.
    """

    def __init__(self) -> None:
        path = os.environ.get(VARIABLE)
        self._file = TraceFile(path) if path else None
        self._sinks: list[Sink] = []

    @contextmanager
    def into(self, sink: Sink) -> Iterator[None]:
        """Hand the events of requests that open inside the block to ``sink`` as well."""
        self._sinks.append(sink)
        try:
            yield
        finally:
            self._sinks.remove(sink)

    def begin(self) -> list[Sink]:
        """A request opens: where its events go.  An empty list: it is not traced."""
        return [*([self._file.request()] if self._file else ()), *self._sinks]
