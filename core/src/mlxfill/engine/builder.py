"""Opening a request: from prompt and options to a run that has computed nothing yet."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import attrs

from mlxfill.chat.readonly import sealed
from mlxfill.contracts import Event, Limits, Request
from mlxfill.decode.method import check_method
from mlxfill.decode.run import Run
from mlxfill.decode.runstate import RunState
from mlxfill.decode.trace import Trace
from mlxfill.engine.admission import (
    UNNAMED,
    admit,
    check_alike,
    check_snapshot,
    check_sources,
    check_team,
)
from mlxfill.engine.prefix import PrefixLookup
from mlxfill.engine.proposers import Proposers
from mlxfill.errors import InputError
from mlxfill.forward.constraint import find_constraint
from mlxfill.forward.guarded import CheckedProcessor, NamedProcessor
from mlxfill.forward.runner import TargetRunner
from mlxfill.forward.watched import WatchedRunner
from mlxfill.model.team import SharedChooser
from mlxfill.policy.cost import CostCurve
from mlxfill.policy.plan import Gate
from mlxfill.proposals.session import PROPOSE_BUDGET_S, Rules, Session
from mlxfill.sampling import Chooser
from mlxfill.tool_calls.rendering import renderer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlxfill.chat.prompt import Prompt
    from mlxfill.contracts import Fault, GenerationMethod
    from mlxfill.decode.trace import Sink
    from mlxfill.engine.resources import Resources
    from mlxfill.forward.constraint import ActiveConstraint
    from mlxfill.prefix_cache.prefilled import PrefilledCache
    from mlxfill.request.options import Options
    from mlxfill.resume.keeper import Keeper
    from mlxfill.sampling import Sampling

UNBOUNDED = 1 << 60


class RequestBuilder:
    """One request to one engine while it is being put together."""

    def __init__(self, shared: Resources, options: Options, faults: list[Fault]) -> None:
        """``faults`` is the request's list; what goes wrong is added to it."""
        self._shared, self.options, self.faults = shared, options, faults
        self._beginning = PrefixLookup(
            shared.target, options, shared.config.cache, shared.prompts, shared.starts
        )
        self._holder: ActiveConstraint | None = None
        self._deciding: set[str] = set()
        self._sinks: list[Sink] = []
        self._undo = ExitStack()  # what was taken for a run that never came

    def run(
        self,
        prompt: Prompt,
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        held: PrefilledCache | None = None,
        resumed: bool = False,
    ) -> Run:
        """The opened request.  Raises ``InputError`` for what cannot be generated.

        :param held: caches that hold its beginning already; used in place.
        :param resumed: whether it goes on from a checkpoint.
        """
        shared, options = self._shared, self.options
        self._sinks = shared.tracing.begin()
        ids, unnamed = self._admitted(prompt)
        request = self._request(ids, prompt, tools)
        check_team(shared.team, options, request)
        proposers = Proposers(shared, options, self.faults, self._report)
        if held is None:
            held = self._beginning.caches(request, unnamed, proposers)
        check_snapshot(options, held.count - held.unnamed)
        forwarder = self._forwarder(request, held, watched=bool(self._sinks))
        with self._undo:
            state = self._assembled(request, forwarder, proposers, held, resumed=resumed)
            self._undo.pop_all()
        run = Run(state)
        try:
            keeper = self._keeper(state, resumed=resumed)
            if keeper is not None:
                state.keep(keeper)
        except BaseException:
            run.close()
            raise
        return run

    def check(self, prompt: Prompt, tools: Sequence[Mapping[str, Any]] | None) -> None:
        """Raise what ``run`` would raise of this request; nothing is opened, nobody hears of it."""
        sampling = self.options.sampling
        if sampling.seed is None:  # to draw one is for the thread that generates
            seeded = attrs.evolve(sampling, seed=0)
            self.options = attrs.evolve(self.options, sampling=seeded)
        ids, unnamed = self._admitted(prompt)
        request = self._request(ids, prompt, tools)
        held = self._beginning.unshared(request, unnamed)
        check_snapshot(self.options, held.count - held.unnamed)
        self._forwarder(request, held, watched=False)
        self._method(request)

    def _admitted(self, prompt: Prompt) -> tuple[tuple[int, ...], int]:
        """See ``admit``."""
        check_sources(self._shared.plugins, self.options)
        return admit(self._shared.target, self.options, prompt, self._shared.context)

    def _keeper(self, run: RunState, *, resumed: bool) -> Keeper | None:
        """Who takes the run's checkpoints; refuses at once what could not be stored later."""
        options = self.options
        if options.checkpoint is None and options.on_checkpoint is None:
            return None
        if self._shared.team.size > 1:
            raise InputError(f"{self._shared.team.size} ranks share this model: no checkpoints")
        from mlxfill.checkpoint.serialize import packed
        from mlxfill.resume.capture import packed_request
        from mlxfill.resume.keeper import Keeper

        packed(run.forwarder.caches, "cache", {})
        packed_request(run, {})
        return Keeper(self._shared.identity, options, resumed=resumed)

    # --- the request as plugins see it ------------------------------------------------

    def _request(
        self, ids: tuple[int, ...], prompt: Prompt, tools: Sequence[Mapping[str, Any]] | None
    ) -> Request:
        shared, options = self._shared, self.options
        sampling = options.sampling.seeded()
        sampling = attrs.evolve(sampling, seed=shared.team.share_number(sampling.seed or 0))
        sampling.check_vocabulary(shared.target.vocab_size)
        eos = options.eos_token_ids
        request = Request(
            prompt_ids=ids,
            prompt_text=prompt.text,
            messages=sealed(prompt.messages),
            tools=sealed(tuple(tools)) if tools else None,
            sampling=sampling,
            limits=Limits(options.max_tokens, shared.context),
            tokenizer=shared.tokenizer,
            render=renderer(shared.tokenizer),
            eos_ids=frozenset(shared.tokenizer.eos_token_ids if eos is None else eos),
            delimiters=frozenset(options.delimiters),
            session=options.session,
            template_options=sealed(options.template_options),
            schema=options.schema,
        )
        ends = request.delimiters | shared.plugins.delimiters(request, self.faults)
        return attrs.evolve(request, delimiters=ends)

    # --- the parts ------------------------------------------------------------------

    def forwarder(self, request: Request) -> TargetRunner:
        """What forwards the tokens of one request, with caches and processors of its own."""
        return self._forwarder(request, self._beginning.unshared(request), watched=False)

    def _forwarder(self, request: Request, held: PrefilledCache, *, watched: bool) -> TargetRunner:
        """The same on given caches.

        :param watched: whether it checks what the caches hold, for a trace.
        """
        shared, options = self._shared, self.options
        self._holder = find_constraint(shared.plugins, request, self.faults)
        theirs = shared.plugins.logits_processors(request, self.faults)
        self._deciding.update(plugin for plugin, _ in theirs)
        if self._holder is not None:
            self._deciding.add(self._holder.plugin)
        processors = [
            *request.sampling.processors(),
            *(NamedProcessor(plugin, processor) for plugin, processor in theirs),
            *map(CheckedProcessor, options.logits_processors),
            # Last: nobody may allow what the schema forbids.
            *([self._holder.mask] if self._holder else ()),
        ]
        forwarder = (WatchedRunner if watched else TargetRunner)(
            shared.target,
            held.caches,
            self._chooser(request.sampling),
            options,
            processors,
            eos=request.eos_ids,
            stream=shared.stream,
            make_rewinder=shared.rewinder,
        )
        forwarder.held, forwarder.unnamed = held.count, held.unnamed
        # mlx-lm's own processors and a constraint look at the tokens alone.
        forwarder.shows_asserted = bool(theirs or options.logits_processors)
        return forwarder

    def _chooser(self, sampling: Sampling) -> Chooser:
        team, sampler = self._shared.team, self.options.sampler
        if team.size == 1:
            return Chooser(sampling, sampler)
        return SharedChooser(team, sampling, sampler)

    def _assembled(
        self,
        request: Request,
        forwarder: TargetRunner,
        proposers: Proposers,
        held: PrefilledCache,
        *,
        resumed: bool,
    ) -> RunState:
        shared, options = self._shared, self.options
        method = self._method(request)
        seats = proposers.seats(request, self._holder) if method is None else []
        drafting = proposers.drafting(forwarder, held, self._undo) if method is None else None
        check_alike(shared.team, forwarder, seats, drafting)
        budget = options.max_tokens if options.max_tokens >= 0 else UNBOUNDED
        worthwhile = drafting is not None or shared.learnt.worth_measuring(budget)
        verifies = worthwhile and (bool(seats) or drafting is not None)
        supported = not verifies or not proposers.no_rewind(forwarder)
        rules = self._rules(request, verify_supported=supported, verify_pays=worthwhile)
        tokens = [UNNAMED] * forwarder.unnamed + list(request.prompt_ids)
        session = Session(tokens, budget, rules, seats, self._report)
        if self._holder is not None:
            session.complete = forwarder.complete = self._holder.complete
        curve = shared.learnt.curve() if verifies else CostCurve()
        opened = {"prompt_tokens": len(request.prompt_ids), "seed": request.sampling.seed}
        self._notify(Event("request", opened))
        if request.messages is not None:
            for fault in shared.unread.faults(request):
                if fault not in self.faults:  # a checkpoint's request was told already
                    self._report(fault)
        if isinstance(forwarder, WatchedRunner):
            Trace(session, forwarder, shared.tokenizer, self._notify, self._report)
        return RunState(
            request,
            options,
            forwarder,
            session,
            drafting,
            Gate(curve, enabled=shared.config.gate.enabled, budget=shared.learnt.budget),
            self.faults,
            # What a resumed one's caches hold before its prompt, or in its place, is not stored.
            deposit=None
            if method or resumed
            else self._beginning.deposit(request, forwarder, drafting, self._report),
            deciding=self._deciding | {seat.plugin for seat in seats if seat.trusted},
            method=method,
            notify=self._notify,
        )

    def _method(self, request: Request) -> GenerationMethod | None:
        """Who generates it in another way than by tokens; refuses what such a one cannot give."""
        shared = self._shared
        method = shared.plugins.generation_method(shared.target, request, self.faults)
        if method is not None:
            check_method(method, self.options, held=self._holder is not None)
        return method

    def _rules(self, request: Request, *, verify_supported: bool, verify_pays: bool) -> Rules:
        return Rules(
            vocab_size=self._shared.target.vocab_size,
            eos=request.eos_ids,
            delimiters=request.delimiters,
            max_span=self.options.max_span,
            verify_supported=verify_supported,
            verify_pays=verify_pays,
            verify_only=self.options.sources_policy == "verify",
            # A clock would tell the ranks of a team different things about a source.
            propose_budget_s=PROPOSE_BUDGET_S if self._shared.team.size == 1 else math.inf,
            leaves_out=self._shared.team.size == 1,
        )

    # --- what others hear of it -------------------------------------------------------

    def _notify(self, event: Event) -> None:
        self._shared.plugins.observe(event, self.faults)
        for sink in self._sinks:
            sink(event)

    def _report(self, fault: Fault) -> None:
        self.faults.append(fault)
        self._notify(Event("fault", attrs.asdict(fault)))
