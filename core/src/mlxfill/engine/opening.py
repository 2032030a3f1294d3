"""Opening a request: from prompt and options to a run that has computed nothing yet."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import attrs

from mlxfill.contracts import Event, Fault, Limits, Request
from mlxfill.engine.boundaries import boundaries
from mlxfill.engine.checkpoint.keeper import Keeper
from mlxfill.engine.checkpoint.plain import packed
from mlxfill.engine.drafting import Drafting
from mlxfill.engine.forward import Forwarder
from mlxfill.engine.gate import CostCurve, Gate, Survival
from mlxfill.engine.guarded import NamedProcessor
from mlxfill.engine.method import check_method
from mlxfill.engine.prewarm import Held, counted_tokens, own_caches
from mlxfill.engine.prompt import Prompt, check_prompt, render
from mlxfill.engine.prompt_store import Deposit, trimmable
from mlxfill.engine.run import Run
from mlxfill.engine.schema import Holder, find_holder
from mlxfill.engine.sealed import sealed
from mlxfill.engine.session import PROPOSE_BUDGET_S, Rules, Seat, Session
from mlxfill.engine.trace import Trace
from mlxfill.engine.watched import WatchedForwarder
from mlxfill.errors import DrafterError, InputError
from mlxfill.model.team import SharedChooser
from mlxfill.nearest import did_you_mean
from mlxfill.plugins.faults import charge
from mlxfill.sampling import Chooser

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlxfill.contracts import DraftCheckpoint, DraftRows
    from mlxfill.engine.drafter import Drafter
    from mlxfill.engine.engine import Engine
    from mlxfill.engine.options import Options
    from mlxfill.engine.trace import Sink
    from mlxfill.sampling import Sampling

UNBOUNDED = 1 << 60
PLAIN = (bool, int, float, str, tuple, type(None))
"""Types of options that say the same in every process."""
UNNAMED = 0
"""Stands for tokens in an mlx-lm ``prompt_cache`` that nobody names any more."""


class Opening:
    """One request to one engine while it is being put together."""

    def __init__(self, engine: Engine, options: Options, faults: list[Fault]) -> None:
        """``faults`` is the request's list; what goes wrong is added to it."""
        self.engine, self.options, self.faults = engine, options, faults
        self._holder: Holder | None = None
        self._draft_state: DraftCheckpoint | None = None
        self._deciding: set[str] = set()
        self._sinks: list[Sink] = []

    def run(
        self,
        prompt: Prompt,
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        held: Held | None = None,
        resumed: bool = False,
    ) -> Run:
        """The opened request.  Raises ``InputError`` for what cannot be generated.

        :param held: caches that hold its beginning already; used in place.
        :param resumed: whether it goes on from a checkpoint.
        """
        self._sinks = self.engine.tracing.begin()
        self.engine.target.adapters.check(self.options.adapters)
        self._check_sources()
        ids, unnamed = self._checked(prompt)
        request = self._request(ids, prompt, tools)
        self._check_team(request)
        if held is None:
            held = self._stored(request) or self._held(request, unnamed)
        self._draft_state = held.draft
        forwarder = self._forwarder(request, held, watched=bool(self._sinks))
        self._check_snapshot(forwarder.held - forwarder.unnamed)
        run = self._assembled(request, forwarder)
        try:
            run.brake.keeper = self._keeper(run, resumed=resumed)
        except BaseException:
            run.close()
            raise
        return run

    def check(self, prompt: Prompt, tools: Sequence[Mapping[str, Any]] | None) -> None:
        """Raise what ``run`` would raise of this request; nothing is opened, nobody hears of it."""
        self.engine.target.adapters.check(self.options.adapters)
        ids, _ = self._checked(prompt)
        request = self._request(ids, prompt, tools)
        find_holder(self.engine.plugins, request, self.faults)

    def _held(self, request: Request, unnamed: int = 0) -> Held:
        """What the caches of a new request hold."""
        options, target = self.options, self.engine.target
        if options.prompt_cache is not None:
            return Held(options.prompt_cache, unnamed, unnamed)
        return own_caches(
            target, options.cache, request.prompt_ids, options.max_kv_size, options.adapters
        )

    @property
    def _brings_caches(self) -> bool:
        """Whether the caller had the beginning of the prompt read already."""
        return self.options.cache is not None or self.options.prompt_cache is not None

    def _may_store(self) -> bool:
        """Whether this request takes its beginning from the prompt cache, and leaves its own there.

        Not where a beginning that was processed apart reads otherwise than in one prompt: caches
        that are quantized on the way, or that drop tokens.
        """
        options = self.options
        wanted = options.session is not None or self.engine.config.cache.every_request
        unfit = (options.cache, options.prompt_cache, options.input_embeddings, options.snapshot_at)
        others = (options.kv_bits, options.max_kv_size)
        bounds = self.engine.config.cache
        return wanted and bounds.max_entries > 0 and all(o is None for o in (*unfit, *others))

    def _stored(self, request: Request) -> Held | None:
        """The longest beginning of the prompt that an earlier request left."""
        if not self._may_store():
            return None
        drafter = self.engine.drafter
        drafts = drafter is not None and self._most_drafts(drafter) > 0
        worth = drafter.worth(self.engine.curve()) if drafter is not None and drafts else 0.0
        return self.engine.prompts.fetch(
            request.prompt_ids, adapters=self.options.adapters, drafts_worth=worth
        )

    def _deposit(
        self, request: Request, forwarder: Forwarder, drafting: Drafting | None
    ) -> Deposit | None:
        """What the request leaves in the prompt cache.  Caches at its end may be trimmable."""
        if not self._may_store():
            return None
        several = drafting is not None or not trimmable(forwarder.caches)
        found = boundaries(request) if several else ()
        after = [at for at in found if at > forwarder.held]
        return Deposit(self.engine.prompts, forwarder, drafting, after)

    def _keeper(self, run: Run, *, resumed: bool) -> Keeper | None:
        """Who takes the run's checkpoints; refuses at once what could not be stored later."""
        options = self.options
        if options.checkpoint is None and options.on_checkpoint is None:
            return None
        if run.method is not None:
            raise InputError(f"{run.method.name!r} does not generate by tokens: no checkpoints")
        if self.engine.team.size > 1:
            raise InputError(f"{self.engine.team.size} ranks share this model: no checkpoints")
        packed(run.forwarder.caches, "cache", {})
        return Keeper(self.engine, options, resumed=resumed)

    # --- the prompt ---------------------------------------------------------------

    def _checked(self, prompt: Prompt) -> tuple[tuple[int, ...], int]:
        """Prompt ids, and how many tokens stand before them in an mlx-lm ``prompt_cache``."""
        options, ids, unnamed = self.options, prompt.ids, 0
        if options.input_embeddings is not None:
            ids = self._check_embeddings(ids, options.input_embeddings)
        if options.prompt_cache is not None and not all(c.empty() for c in options.prompt_cache):
            # Recurrent states do not count their tokens; they need no positions either.
            unnamed = counted_tokens(options.prompt_cache) or 0
        limit = self.engine.context
        check_prompt(ids, self.engine.target.vocab_size, None if limit is None else limit - unnamed)
        at = options.snapshot_at
        if at is not None and at >= len(ids):
            message = f"snapshot_at must be 1 to {len(ids) - 1} for this prompt, not {at}"
            raise InputError(message)
        return ids, unnamed

    def _check_sources(self) -> None:
        """Refuse a plugin that is not on: it cannot propose anything."""
        on = self.engine.plugins.names
        for name in self.options.sources or ():
            if name not in on:
                known = ", ".join(on) or "none"
                hint = did_you_mean(name, on)
                raise InputError(f"sources names {name!r}, which is not on{hint}; on are: {known}")

    def _check_team(self, request: Request) -> None:
        """Refuse what the ranks of a team would not decide alike."""
        team, options = self.engine.team, self.options
        if team.size == 1:
            return
        if options.cancel is not None:
            raise InputError(
                f"cancel cannot reach {team.size} ranks at the same token: stop reading the pieces"
                " at the same one on every rank instead"
            )
        values = attrs.asdict(options, recurse=False).items()
        plain = [(name, value) for name, value in values if isinstance(value, PLAIN)]
        team.check_same("request", request.prompt_ids, request.tools, request.sampling, plain)

    def _check_snapshot(self, cached: int) -> None:
        at = self.options.snapshot_at
        if at is not None and at < cached:
            message = f"snapshot_at must be at least {cached}, what the given cache holds, not {at}"
            raise InputError(message)

    def _check_embeddings(self, ids: tuple[int, ...], embeddings: Any) -> tuple[int, ...]:  # noqa: ANN401
        from mlx_lm.utils import does_model_support_input_embeddings

        if not does_model_support_input_embeddings(self.engine.model):
            message = "this model takes no input_embeddings"
            raise InputError(message)
        if ids and len(ids) != len(embeddings):
            message = f"input_embeddings has {len(embeddings)} rows, the prompt {len(ids)} ids"
            raise InputError(message)
        return ids or (UNNAMED,) * len(embeddings)

    def _request(
        self, ids: tuple[int, ...], prompt: Prompt, tools: Sequence[Mapping[str, Any]] | None
    ) -> Request:
        engine, options = self.engine, self.options
        sampling = options.sampling.seeded()
        sampling = attrs.evolve(sampling, seed=engine.team.share_number(sampling.seed or 0))
        sampling.check_vocabulary(engine.target.vocab_size)
        eos = options.eos_token_ids
        request = Request(
            prompt_ids=ids,
            prompt_text=prompt.text,
            messages=sealed(prompt.messages),
            tools=sealed(tuple(tools)) if tools else None,
            sampling=sampling,
            limits=Limits(options.max_tokens, engine.context),
            tokenizer=engine.tokenizer,
            render=self._render,
            eos_ids=frozenset(engine.tokenizer.eos_token_ids if eos is None else eos),
            delimiters=frozenset(options.delimiters),
            session=options.session,
            template_options=sealed(options.template_options),
            schema=options.schema,
        )
        ends = request.delimiters | engine.plugins.delimiters(request, self.faults)
        return attrs.evolve(request, delimiters=ends)

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> str:
        return render(self.engine.tokenizer, messages, tools, options)

    # --- the parts ------------------------------------------------------------------

    def forwarder(self, request: Request) -> Forwarder:
        """What forwards the tokens of one request, with caches and processors of its own."""
        return self._forwarder(request, self._held(request), watched=False)

    def _forwarder(self, request: Request, held: Held, *, watched: bool) -> Forwarder:
        """The same on given caches.

        :param watched: whether it checks what the caches hold, for a trace.
        """
        engine, options = self.engine, self.options
        self._holder = find_holder(engine.plugins, request, self.faults)
        theirs = engine.plugins.logits_processors(request, self.faults)
        self._deciding.update(plugin for plugin, _ in theirs)
        if self._holder is not None:
            self._deciding.add(self._holder.plugin)
        processors = [
            *request.sampling.processors(),
            *(NamedProcessor(plugin, processor) for plugin, processor in theirs),
            *options.logits_processors,
            # Last: nobody may allow what the schema forbids.
            *([self._holder.mask] if self._holder else ()),
        ]
        forwarder = (WatchedForwarder if watched else Forwarder)(
            engine.target,
            held.caches,
            self._chooser(request.sampling),
            options,
            processors,
            eos=request.eos_ids,
            stream=engine.mlx_stream,
            make_rewinder=engine.rewinder,
        )
        forwarder.held, forwarder.unnamed = held.count, held.unnamed
        # mlx-lm's own processors and a constraint look at the tokens alone.
        forwarder.shows_asserted = bool(theirs or options.logits_processors)
        return forwarder

    def _chooser(self, sampling: Sampling) -> Chooser:
        team, sampler = self.engine.team, self.options.sampler
        if team.size == 1:
            return Chooser(sampling, sampler)
        return SharedChooser(team, sampling, sampler)

    def _assembled(self, request: Request, forwarder: Forwarder) -> Run:
        engine, options = self.engine, self.options
        method = engine.plugins.generation_method(engine.target, request, self.faults)
        if method is not None:
            check_method(method, options, held=self._holder is not None)
        seats = self._seats(request) if method is None else []
        drafter = engine.drafter if method is None else None
        drafting = self._drafting(drafter, forwarder) if drafter else None
        speculates = bool(seats) or drafting is not None
        rules = Rules(
            vocab_size=engine.target.vocab_size,
            eos=request.eos_ids,
            delimiters=request.delimiters,
            max_span=options.max_span,
            verify_supported=not speculates or not self._no_rewind(forwarder),
            verify_only=options.sources_policy == "verify",
            # A clock would tell the ranks of a team different things about a source.
            propose_budget_s=PROPOSE_BUDGET_S if engine.team.size == 1 else math.inf,
        )
        budget = options.max_tokens if options.max_tokens >= 0 else UNBOUNDED
        tokens = [UNNAMED] * forwarder.unnamed + list(request.prompt_ids)
        session = Session(tokens, budget, rules, seats, self._report)
        if self._holder is not None:
            session.complete = self._holder.complete
        curve = engine.curve() if speculates else CostCurve()
        opened = {"prompt_tokens": len(request.prompt_ids), "seed": request.sampling.seed}
        self._notify(Event("request", opened))
        if isinstance(forwarder, WatchedForwarder):
            Trace(session, forwarder, engine.tokenizer, self._notify, self._report)
        return Run(
            request,
            options,
            forwarder,
            session,
            drafting,
            Gate(curve, enabled=engine.config.gate.enabled, purse=engine.purse),
            self.faults,
            deposit=None if method else self._deposit(request, forwarder, drafting),
            deciding=self._deciding | {seat.plugin for seat in seats if seat.trusted},
            method=method,
            notify=self._notify,
        )

    def _no_rewind(self, forwarder: Forwarder) -> str:
        """Why these caches cannot be taken back: the model's kind, or what the caller gave."""
        unsupported = forwarder.window.unsupported
        return f"its {unsupported} has no rewinder" if unsupported else self.engine.no_rewind()

    def _seats(self, request: Request) -> list[Seat]:
        engine, holder = self.engine, self._holder
        trusted = set(engine.config.trust.assert_)
        found = engine.plugins.proposal_sources(request, self.faults)
        wanted = self.options.sources
        if wanted is not None:
            found = [(plugin, source) for plugin, source in found if plugin in wanted]
        if holder is not None:
            # What others would append unread might not be what the schema allows.
            trusted &= {holder.plugin}
            found = [(holder.plugin, holder.constraint), *found]
        return [
            Seat(
                plugin,
                source,
                plugin in trusted,
                engine.records.setdefault((plugin, type.__repr__(type(source))), Survival()),
            )
            for plugin, source in found
        ]

    def _drafting(self, drafter: Drafter, forwarder: Forwarder) -> Drafting | None:
        engine = self.engine
        cap = self._most_drafts(drafter)
        if not cap:
            return None
        if forwarder.window.unsupported:
            message = f"these caches cannot be used with a drafter: {self._no_rewind(forwarder)}"
            raise DrafterError(message)
        engine.time_drafts(drafter, cap)
        try:
            drafting = Drafting(
                drafter,
                self._draft_rows(drafter, forwarder),
                cap=cap,
                vocab_size=engine.target.vocab_size,
                stream=engine.mlx_stream,
                on_fault=self._report,
            )
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
            self._report(Fault(drafter.plugin, "open", charge(error)))
            return None
        if self._draft_state is not None:
            drafting.restored(self._draft_state)
        elif drafting.tap_layers and forwarder.held and not self._brings_caches:
            drafting.sit_out()  # the states that it needs were not kept: it did not pay
        drafting.check_taps(engine.target.layer_count)
        forwarder.tap_layers = drafting.tap_layers
        return drafting

    def _most_drafts(self, drafter: Drafter) -> int:
        """Most ids that it may draft in one round of this request."""
        asked = (self.options.num_draft_tokens, self.engine.num_draft_tokens)
        return next((n for n in asked if n is not None), drafter.provider.default_depth)

    def _draft_rows(self, drafter: Drafter, forwarder: Forwarder) -> DraftRows:
        """One row: after the tokens that the caches hold, or an empty one where that cannot be."""
        provider, target, state = drafter.provider, self.engine.target, self._draft_state
        if state is not None and state.processed_tokens == forwarder.held:
            try:
                return provider.open(target, forwarder.chooser, [state])
            except BaseException as error:  # noqa: BLE001 - another drafter, another version
                self._report(Fault(drafter.plugin, "restore", charge(error)))
        self._draft_state = None
        return provider.open(target, forwarder.chooser, [None])

    # --- what others hear of it -------------------------------------------------------

    def _notify(self, event: Event) -> None:
        self.engine.plugins.observe(event, self.faults)
        for sink in self._sinks:
            sink(event)

    def _report(self, fault: Fault) -> None:
        self.faults.append(fault)
        self._notify(Event("fault", attrs.asdict(fault)))
