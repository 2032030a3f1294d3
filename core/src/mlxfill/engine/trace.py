"""What happens inside a request, as events: one for each proposal and each window.

``MLXFILL_TRACE=file.jsonl`` writes them to a file; plugins receive them through
``mlxfill_observe``.  A request that is not traced runs without any of this.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from attrs import asdict, define, field

from mlxfill.contracts import Event, Fault, Policy
from mlxfill.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from mlxfill.engine.drafting import Drafting
    from mlxfill.engine.forward import Judged
    from mlxfill.engine.session import Offer, Session
    from mlxfill.engine.watched import WatchedForwarder, Window

    Sink = Callable[[Event], None]

VARIABLE = "MLXFILL_TRACE"


@define
class Trace:
    """Turns what one request reports into events.

    A ``proposal`` names plugin, origin and policy, ``position`` in the session and ``generated``
    tokens before it, the ``proposed`` ids, how many of them were ``judged`` and ``accepted``, and the
    first ``mismatch``: its position, and id and text of both sides.  A ``round`` is one window.
    """

    session: Session
    forwarder: WatchedForwarder
    drafting: Drafting | None
    tokenizer: Any
    emit: Sink
    faults: list[Fault]
    _prompt: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._prompt = len(self.session.tokens)
        self.session.on_proposal = self._proposal
        self.forwarder.on_window = self._window
        self.forwarder.on_misaligned = self._misaligned
        if self.drafting is not None:
            self.drafting.on_round = self._drafts

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

    def _drafts(self, ids: Sequence[int], judged: Judged) -> None:
        drafting, accepted = self.drafting, judged.accepted
        if drafting is None:
            return
        missed = accepted < len(ids)
        self._record(
            drafting.plugin,
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
        position = len(self.session.tokens)
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
        self.emit(Event("proposal", data))

    def _token(self, token: int) -> dict[str, Any]:
        return {"id": token, "text": self.tokenizer.decode([token])}

    def _window(self, window: Window) -> None:
        self.emit(Event("round", asdict(window)))

    def _misaligned(self, what: str) -> None:
        fault = Fault("engine", "caches", what)
        self.faults.append(fault)
        self.emit(Event("fault", asdict(fault)))


class TraceFile:
    """A JSON object a line: ``time`` (seconds since 1970), ``request``, ``kind``, and the data."""

    def __init__(self, path: str) -> None:
        """Append to the file at ``path``.  Raises ``InputError`` when that cannot be written."""
        try:
            self._file: TextIO = open(path, "a", encoding="utf-8", buffering=1)  # noqa: PTH123, SIM115
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{VARIABLE}={path}: cannot be written: {reason}") from error
        self._requests = 0

    @classmethod
    def wanted(cls) -> TraceFile | None:
        """The file that the environment names, None when it names none."""
        path = os.environ.get(VARIABLE)
        return cls(path) if path else None

    def request(self) -> Sink:
        """Where the events of one more request go."""
        self._requests += 1
        head = {"request": f"{os.getpid()}-{self._requests}"}
        return lambda event: self._write({**head, "kind": event.kind, **event.data})

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 6), **record}, ensure_ascii=False)
        self._file.write(line + "\n")

    def close(self) -> None:
        """Close the file.  Safe to call twice."""
        self._file.close()
