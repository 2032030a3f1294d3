"""One generation on its way from an HTTP handler to the engine's thread and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from attrs import define, frozen

if TYPE_CHECKING:
    from mlxfill import Audit, AuditedRun, Engine, Run, Stats
    from mlxfill_serve.mailbox import Mailbox

Opener = Callable[["Engine"], "Run | AuditedRun"]
"""Opens a run; called in the engine's thread."""


class Token(NamedTuple):
    """One token.  ``tops``: the likeliest (id, log-probability) pairs."""

    text: str
    id: int | None
    origin: str
    logprob: float | None = None
    tops: list[tuple[int, float]] | None = None


@frozen
class Opened:
    """The request is legal and its prompt is known."""

    prompt_tokens: int
    prompt_text: str


@frozen
class Scored:
    """The tokens of a prompt that was read; the first has no log-probability."""

    tokens: list[Token]


@frozen
class Ended:
    """No more tokens.  ``last``: nothing else follows, either."""

    reason: str
    stats: Stats
    last: bool = True


@frozen
class Audited:
    """The reply was compared with plain decoding."""

    found: Audit


Event = Opened | Scored | Token | Ended | Audited | Exception


@define(eq=False)
class Job:
    """A run to be made, and where its tokens go.

    ``index`` tells the jobs of one request apart, which share a mailbox.  ``gone``: set by the
    handler when nobody listens any more; the engine's thread then drops the run.  ``born``: when
    the worker was given it, by its clock.  ``audited``: the run when it is to be audited.
    ``scored``: whether log-probabilities of the prompt were told.
    """

    open: Opener
    mailbox: Mailbox[tuple[int, Event]]
    index: int = 0
    timeout: float = 600.0
    gone: bool = False
    audited: AuditedRun | None = None
    scored: bool = False
    born: float = 0.0

    def tell(self, event: Event) -> None:
        """Send an event to the handler."""
        self.mailbox.put((self.index, event))

    def late(self, now: float) -> bool:
        """Whether its time is over."""
        return now - self.born > self.timeout
