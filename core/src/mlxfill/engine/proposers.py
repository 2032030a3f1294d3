"""Who guesses the tokens of one request: the sources at its table, and the drafter."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mlxfill.contracts import Fault
from mlxfill.errors import DrafterError
from mlxfill.plugins.faults import charge
from mlxfill.policy.drafter import most_drafts
from mlxfill.proposals.drafting import Drafting
from mlxfill.proposals.session import SourceState

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from mlxfill.contracts import DraftCheckpoint, DraftRows, Request
    from mlxfill.engine.resources import Resources
    from mlxfill.forward.constraint import ActiveConstraint
    from mlxfill.forward.runner import TargetRunner
    from mlxfill.policy.drafter import Drafter
    from mlxfill.prefix_cache.prefilled import PrefilledCache
    from mlxfill.request.options import Options


class Proposers:
    """Finds those that an engine has for one request."""

    def __init__(
        self,
        shared: Resources,
        options: Options,
        faults: list[Fault],
        report: Callable[[Fault], None],
    ) -> None:
        """``faults`` gets what goes wrong in hooks, ``report`` what goes wrong in a drafter."""
        self._shared, self._options = shared, options
        self._faults, self._report = faults, report

    @property
    def drafts_worth(self) -> float:
        """Tokens of a prompt that may rather be read again than be without the drafter."""
        drafter = self._shared.drafter
        if drafter is None or not self._most_drafts(drafter):
            return 0.0
        return drafter.worth(self._shared.learnt.curve())

    def no_rewind(self, forwarder: TargetRunner) -> str:
        """Why these caches cannot be taken back: the model's kind, or what the caller gave."""
        unsupported = forwarder.window.unsupported
        if unsupported:
            return f"its {unsupported} has no rewinder"
        return self._shared.learnt.no_rewind()

    # --- sources ------------------------------------------------------------------------

    def seats(self, request: Request, holder: ActiveConstraint | None) -> list[SourceState]:
        """The sources, by priority; ``holder`` holds the reply to a schema."""
        shared = self._shared
        trusted = set(shared.config.trust.assert_)
        found = shared.plugins.proposal_sources(request, self._faults)
        wanted = self._options.sources
        if wanted is not None:
            found = [(plugin, source) for plugin, source in found if plugin in wanted]
        if holder is not None:
            # What others would append unread might not be what the schema allows.
            trusted &= {holder.plugin}
            found = [(holder.plugin, holder.constraint), *found]
        return [
            SourceState(
                plugin,
                source,
                plugin in trusted,
                shared.learnt.acceptance_of(plugin, source),
            )
            for plugin, source in found
        ]

    # --- the drafter --------------------------------------------------------------------

    def drafting(
        self, forwarder: TargetRunner, held: PrefilledCache, undo: ExitStack
    ) -> Drafting | None:
        """A row of the engine's drafter; None when there is none, or it may not draft.

        :param undo: closes it, unless the request comes to be opened.
        :raises DrafterError: these caches cannot be taken back.
        """
        shared, drafter = self._shared, self._shared.drafter
        cap = 0 if drafter is None else self._most_drafts(drafter)
        if drafter is None or not cap:
            return None
        if forwarder.window.unsupported:
            reason = self.no_rewind(forwarder)
            raise DrafterError(f"these caches cannot be used with a drafter: {reason}")
        shared.learnt.time_drafts(drafter, cap, shared.stream)
        rows: DraftRows | None = None
        try:
            rows, state = self._rows(drafter, forwarder, held.draft)
            drafting = Drafting(
                drafter,
                rows,
                forwarder.chooser,
                cap=cap,
                vocab_size=shared.target.vocab_size,
                stream=shared.stream,
                on_fault=self._report,
            )
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
            if rows is not None:
                with suppress(Exception):
                    rows.close()
            self._report(Fault(drafter.plugin, "open", charge(error)))
            return None
        undo.callback(drafting.close)
        drafting.leaves_out = shared.team.size == 1
        if state is not None:
            drafting.restored(state)
        elif drafting.aux_layers and held.kept:
            drafting.sit_out()  # the states that it needs were not kept: it did not pay
        drafting.check_aux_states(shared.target)
        forwarder.aux_layers = drafting.aux_layers if drafting.alive else ()
        return drafting

    def _most_drafts(self, drafter: Drafter) -> int:
        """Most ids that it may draft in one round of this request."""
        asked = (self._options.num_draft_tokens, self._shared.num_draft_tokens)
        return most_drafts(drafter.provider, *asked)

    def _rows(
        self, drafter: Drafter, forwarder: TargetRunner, state: DraftCheckpoint | None
    ) -> tuple[DraftRows, DraftCheckpoint | None]:
        """One row, and the state that it was opened with: none where that cannot be."""
        provider, target = drafter.provider, self._shared.target
        if state is not None and state.processed_tokens == forwarder.held:
            try:
                return provider.open(target, [forwarder.chooser], [state]), state
            except BaseException as error:  # noqa: BLE001 - another drafter, another version
                self._report(Fault(drafter.plugin, "restore", charge(error)))
        return provider.open(target, [forwarder.chooser], [None]), None
