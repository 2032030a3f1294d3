"""The engine: one model, its plugins, and requests to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import attrs

from mlxfill.config import load_config
from mlxfill.contracts import Event, Fault, Limits, Request
from mlxfill.engine.calibrate import curve_for, store
from mlxfill.engine.drafter import Drafter, measured_cost
from mlxfill.engine.drafting import Drafting
from mlxfill.engine.forward import Forwarder
from mlxfill.engine.gate import CostCurve, Gate, Survival
from mlxfill.engine.mount import bundled, mount
from mlxfill.engine.options import Options, make_options
from mlxfill.engine.prewarm import held_tokens, own_caches
from mlxfill.engine.prompt import Prompt, check_prompt, make_prompt, render
from mlxfill.engine.run import Run
from mlxfill.engine.session import Rules, Seat, Session
from mlxfill.engine.trace import Trace, Tracing
from mlxfill.engine.watched import WatchedForwarder
from mlxfill.errors import DrafterError, InputError
from mlxfill.model.loading import context_limit, find_model, load_model
from mlxfill.model.reading import weight_bytes
from mlxfill.model.target import Target
from mlxfill.plugins import PluginManager
from mlxfill.plugins.faults import one_line
from mlxfill.rewind.window import prove_rewind
from mlxfill.sampling import Chooser

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mlxfill.config import Config
    from mlxfill.contracts import DraftProvider, DraftRows
    from mlxfill.engine.audit import Audit
    from mlxfill.engine.results import Result
    from mlxfill.engine.trace import Sink

UNBOUNDED = 1 << 60
UNNAMED = 0
"""Stands for tokens in an mlx-lm ``prompt_cache`` that nobody names any more."""


def load(  # noqa: PLR0913
    model: str | os.PathLike[str],
    *,
    draft: str | os.PathLike[str] | None = None,
    draft_kind: str | None = None,
    num_draft_tokens: int | None = None,
    plugins: Sequence[str] | None = None,
    config: Config | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    adapter_path: str | None = None,
) -> Engine:
    """Load a model by folder, name of an installed model plugin, or hub id.

    :param plugins: names in priority order; [] for none; None for what the config says.
    :param config: a config file, a mapping with its content, or None for the usual places.
    :param adapter_path: folder of a LoRA adapter.
    :raises ModelError, ConfigError, PluginError, DrafterError: each one line, with the remedy.
    """
    settled = load_config(config)
    manager = PluginManager.load(settled, plugins)
    path = find_model(str(model), manager.resolve_model)
    loaded, tokenizer, model_config = load_model(path, adapter_path)
    engine = Engine(
        loaded,
        tokenizer,
        plugins=manager,
        config=settled,
        draft=draft,
        draft_kind=draft_kind,
        num_draft_tokens=num_draft_tokens,
        path=path,
        context=context_limit(model_config),
    )
    engine.prepare()
    return engine


class Engine:
    """One bound model and the plugins that are on.  A context manager.

    ``model`` and ``tokenizer`` are mlx-lm's.  One request at a time and thread.
    """

    def __init__(  # noqa: PLR0913
        self,
        model: Any,  # noqa: ANN401
        tokenizer: Any,  # noqa: ANN401
        *,
        plugins: Sequence[str] | PluginManager | None = None,
        config: Config | str | os.PathLike[str] | Mapping[str, Any] | None = None,
        draft: str | os.PathLike[str] | None = None,
        draft_kind: str | None = None,
        num_draft_tokens: int | None = None,
        path: Path | None = None,
        context: int | None = None,
        curve: CostCurve | None = None,
        stream: Any = None,  # noqa: ANN401
    ) -> None:
        """Bind a loaded mlx-lm model.

        :param curve: a known cost curve; measured when first needed otherwise.
        :param stream: mlx stream to compute on, mlx-lm's generation stream by default.
        """
        from mlx_lm.generate import generation_stream
        from mlx_lm.tokenizer_utils import TokenizerWrapper

        self.config = load_config(config)
        self.plugins = (
            plugins
            if isinstance(plugins, PluginManager)
            else PluginManager.load(self.config, plugins)
        )
        self.model = model
        self.tokenizer = (
            tokenizer if isinstance(tokenizer, TokenizerWrapper) else TokenizerWrapper(tokenizer)
        )
        self.context = context
        self.tracing = Tracing()
        self.target = Target(model, self.tokenizer, path)
        self.faults: list[Fault] = list(self.plugins.faults)
        self._stream = generation_stream if stream is None else stream
        self._curve = curve
        self._measured = curve is not None
        self._no_rewind: str | None = None
        # What earlier requests showed about each kind of source.
        self._records: dict[tuple[str, type], Survival] = {}
        self._drafter: Drafter | None = None
        self._num_draft_tokens = (
            self.config.num_draft_tokens if num_draft_tokens is None else num_draft_tokens
        )
        if self._num_draft_tokens is not None and self._num_draft_tokens < 0:
            self.target.close()
            message = f"num_draft_tokens must be 0 or more, not {self._num_draft_tokens}"
            raise InputError(message)
        try:
            self._mount(draft or self.config.draft, draft_kind or self.config.draft_kind)
        except BaseException:
            self.target.close()
            raise

    # --- requests -----------------------------------------------------------------

    def stream(
        self,
        prompt: Any,  # noqa: ANN401
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Run:
        """Generate piece by piece.

        :param prompt: a string or ids (taken as they are), or chat messages (through the template).
        :param options: fields of ``Options`` and ``Sampling``: ``max_tokens``, ``stop``, ...
        :returns: an iterator of ``Piece``; leave it at any time.
        :raises InputError, TemplateError, CacheMismatchError: before anything is computed.
        """
        settled = make_options(self._defaults(), options)
        made = make_prompt(self.tokenizer, prompt, tools, settled.template_options)
        return self._open(made, tools, settled)

    def generate(
        self,
        prompt: Any,  # noqa: ANN401
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Result:
        """The same as ``stream``, collected."""
        return self.stream(prompt, tools=tools, **options).result()

    def audit(
        self,
        prompt: Any,  # noqa: ANN401
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Audit:
        """The same, then checked token by token against plain decoding."""
        from mlxfill.engine.audit import audit

        return audit(self, prompt, tools=tools, **options)

    def _defaults(self) -> dict[str, Any]:
        return attrs.asdict(self.config.generation)

    # --- opening a request ------------------------------------------------------------

    def _open(
        self, prompt: Prompt, tools: Sequence[Mapping[str, Any]] | None, options: Options
    ) -> Run:
        faults = list(self.faults)
        ids, unnamed = self._checked_prompt(prompt, options)
        sampling = options.sampling.seeded()
        sampling.check_vocabulary(self.target.vocab_size)
        eos = options.eos_token_ids
        request = Request(
            prompt_ids=ids,
            prompt_text=prompt.text,
            messages=prompt.messages,
            tools=tuple(tools) if tools else None,
            sampling=sampling,
            limits=Limits(options.max_tokens, self.context),
            tokenizer=self.tokenizer,
            render=self._render,
            eos_ids=frozenset(self.tokenizer.eos_token_ids if eos is None else eos),
            delimiters=frozenset(options.delimiters),
            session=options.session,
            template_options=options.template_options,
        )
        ends = request.delimiters | self.plugins.delimiters(request, faults)
        request = attrs.evolve(request, delimiters=ends)
        sinks = self.tracing.begin()
        forwarder = self.forwarder(request, options, faults, watched=bool(sinks))
        forwarder.unnamed = unnamed
        forwarder.held += unnamed
        return self._assemble(request, options, forwarder, faults, sinks)

    def forwarder(
        self, request: Request, options: Options, faults: list[Fault], *, watched: bool = False
    ) -> Forwarder:
        """What forwards the tokens of one request, with caches and processors of its own.

        :param watched: whether it checks what the caches hold, for a trace.
        """
        if options.prompt_cache is not None:
            caches, cached = options.prompt_cache, 0
        else:
            caches, cached = own_caches(
                self.target, options.cache, request.prompt_ids, options.max_kv_size
            )
        processors = [
            *request.sampling.processors(),
            *(p for _, p in self.plugins.logits_processors(request, faults)),
            *options.logits_processors,
        ]
        forwarder = (WatchedForwarder if watched else Forwarder)(
            self.target,
            caches,
            Chooser(request.sampling, options.sampler),
            options,
            processors,
            eos=request.eos_ids,
            stream=self._stream,
            make_rewinder=self._make_rewinder,
        )
        forwarder.held = cached
        return forwarder

    def _assemble(
        self,
        request: Request,
        options: Options,
        forwarder: Forwarder,
        faults: list[Fault],
        sinks: Sequence[Sink],
    ) -> Run:
        def notify(event: Event) -> None:
            self.plugins.observe(event, faults)
            for sink in sinks:
                sink(event)

        def report(fault: Fault) -> None:
            faults.append(fault)
            notify(Event("fault", attrs.asdict(fault)))

        seats = self._seats(request, faults)
        drafting = self._open_drafting(forwarder, options, report)
        speculates = bool(seats) or drafting is not None
        rules = Rules(
            vocab_size=self.target.vocab_size,
            eos=request.eos_ids,
            delimiters=request.delimiters,
            max_span=options.max_span,
            verify_supported=not speculates or not self.no_rewind(),
            verify_only=options.sources_policy == "verify",
        )
        budget = options.max_tokens if options.max_tokens >= 0 else UNBOUNDED
        tokens = [UNNAMED] * forwarder.unnamed + list(request.prompt_ids)
        session = Session(tokens, budget, rules, seats, report)
        gate = Gate(self.curve() if speculates else CostCurve(), enabled=self.config.gate.enabled)
        method = self.plugins.generation_method(self.target, request, faults)
        opened = {"prompt_tokens": len(request.prompt_ids), "seed": request.sampling.seed}
        notify(Event("request", opened))
        if isinstance(forwarder, WatchedForwarder):
            Trace(session, forwarder, self.tokenizer, notify, report)
        return Run(
            request,
            options,
            forwarder,
            session,
            drafting,
            gate,
            faults,
            cached=forwarder.held - forwarder.unnamed,
            method=method,
            notify=notify,
        )

    def _checked_prompt(self, prompt: Prompt, options: Options) -> tuple[tuple[int, ...], int]:
        """Prompt ids, and how many tokens stand before them in an mlx-lm ``prompt_cache``."""
        ids, unnamed = prompt.ids, 0
        if options.input_embeddings is not None:
            ids = self._check_embeddings(ids, options.input_embeddings)
        if options.prompt_cache is not None and not all(c.empty() for c in options.prompt_cache):
            unnamed = held_tokens(options.prompt_cache)
        context = None if self.context is None else self.context - unnamed
        check_prompt(ids, self.target.vocab_size, context)
        at = options.snapshot_at
        if at is not None and at >= len(ids):
            message = f"snapshot_at must be 1 to {len(ids) - 1} for this prompt, not {at}"
            raise InputError(message)
        return ids, unnamed

    def _check_embeddings(self, ids: tuple[int, ...], embeddings: Any) -> tuple[int, ...]:  # noqa: ANN401
        from mlx_lm.utils import does_model_support_input_embeddings

        if not does_model_support_input_embeddings(self.model):
            message = "this model takes no input_embeddings"
            raise InputError(message)
        if ids and len(ids) != len(embeddings):
            message = f"input_embeddings has {len(embeddings)} rows, the prompt {len(ids)} ids"
            raise InputError(message)
        return ids or (0,) * len(embeddings)

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> str:
        return render(self.tokenizer, messages, tools, options)

    def _seats(self, request: Request, faults: list[Fault]) -> list[Seat]:
        trusted = set(self.config.trust.assert_)
        found = self.plugins.proposal_sources(request, faults)
        records = self._records
        return [
            Seat(plugin, source, plugin in trusted, survival)
            for plugin, source in found
            for survival in (records.setdefault((plugin, type(source)), Survival()),)
        ]

    def _make_rewinder(self, entry: object, layer: Any) -> Any:  # noqa: ANN401
        return self.plugins.cache_rewinder(entry, layer, self.target)

    # --- what is learnt once -----------------------------------------------------------

    def no_rewind(self) -> str:
        """Why caches of this model cannot be taken back; "" when they can (tried, not assumed)."""
        if self._no_rewind is None:
            self._no_rewind = prove_rewind(self.target, self._make_rewinder)
        return self._no_rewind

    def curve(self) -> CostCurve:
        """The cost curve, measured on first use and kept on disk."""
        if self._curve is None:
            self._curve = curve_for(self.target) if self.config.gate.enabled else CostCurve.free()
        return self._curve

    def prepare(self) -> None:
        """Do now what the first request that speculates would otherwise wait for."""
        offering = any(
            "mlxfill_proposal_sources" in self.plugins.hooks(n) for n in self.plugins.names
        )
        if offering or self._drafter is not None:
            self.no_rewind()
            self.curve()

    # --- drafter ------------------------------------------------------------------------

    def _mount(self, artifact: str | os.PathLike[str] | None, name: str | None) -> None:
        """Load the drafter that was asked for, or the head that lies in the model's folder."""
        asked = artifact is not None or name is not None
        artifact = artifact or bundled(self.plugins, self.target, name)
        if not asked and (artifact is None or self._num_draft_tokens == 0):
            return
        try:
            self._drafter = mount(self.plugins, self.target, artifact, name, self.no_rewind)
        except DrafterError as error:
            if asked:
                raise
            self.faults.append(Fault("engine", "draft", f"{error}; going on without"))

    def _open_drafting(
        self, forwarder: Forwarder, options: Options, report: Callable[[Fault], None]
    ) -> Drafting | None:
        if self._drafter is None:
            return None
        drafter, provider = self._drafter, self._drafter.provider
        cap = options.num_draft_tokens
        cap = self._num_draft_tokens if cap is None else cap
        cap = provider.default_depth if cap is None else cap
        if not cap:
            return None
        if drafter.cost is None:
            drafter.cost = self._draft_cost(provider, cap)
        try:
            rows: DraftRows = provider.open(self.target, forwarder.chooser, [None])
            drafting = Drafting(
                drafter,
                rows,
                cap=cap,
                vocab_size=self.target.vocab_size,
                stream=self._stream,
                on_fault=report,
            )
            drafting.check_taps(self.target.layer_count)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            report(Fault(drafter.plugin, "open", one_line(error)))
            return None
        forwarder.tap_layers = drafting.tap_layers
        return drafting

    def _draft_cost(self, provider: DraftProvider, depth: int) -> float:
        """Cost of one draft in plain steps: measured where it decides whether to draft.

        A drafter that cannot be timed costs what its weights weigh against the target's.
        """
        could_pay = self.config.gate.enabled and self.curve().cost(1 + depth) < 1 + depth
        if could_pay and provider.weights_bytes:
            try:
                return measured_cost(self.target, provider, depth, self._stream)
            except Exception:  # noqa: BLE001, S110 - a plugin may raise anything; requests will tell
                pass
        share = provider.weights_bytes / max(weight_bytes(self.model), 1)
        return min(max(share, 0.0), 1.0)

    # --- end ---------------------------------------------------------------------------

    def close(self) -> None:
        """Unbind the model, keep what was learnt about costs.  Safe to call twice."""
        if self._drafter is not None:
            self._drafter.provider.close()
            self._drafter = None
        if self._curve is not None and not self._measured and self.config.gate.enabled:
            store(self.target, self._curve)
            self._measured = True
        self.target.close()

    def __enter__(self) -> Self:
        """The engine itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
