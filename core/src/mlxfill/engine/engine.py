"""The engine: one model, its plugins, and requests to it."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Never, Self, Unpack

import attrs

from mlxfill.batch import MAX_ROWS
from mlxfill.chat.markers import TEXT, ContentMarkers
from mlxfill.chat.prompt import Prompt, make_prompt
from mlxfill.chat.template_checks import TemplateChecks
from mlxfill.config import load_config
from mlxfill.contracts import Fault
from mlxfill.decode.profile import ModelProfile
from mlxfill.decode.trace import Tracing
from mlxfill.drafters.inside import bundled
from mlxfill.engine.builder import RequestBuilder
from mlxfill.engine.load_drafter import AUTO, mount, mount_best, passed_over
from mlxfill.engine.resources import Resources
from mlxfill.errors import DrafterError, InputError
from mlxfill.forward.guarded import PluginRewinders
from mlxfill.loading.forked import check_process
from mlxfill.loading.given import check_loaded
from mlxfill.loading.model import settle_randomness
from mlxfill.model.detokenizer import with_exact_text
from mlxfill.model.reading import parameters
from mlxfill.model.target import Target
from mlxfill.model.team import RankGroup
from mlxfill.plugins import PluginManager
from mlxfill.plugins.faults import recorded
from mlxfill.prefix_cache.boundaries import SharedPrefixes
from mlxfill.prefix_cache.store import PrefixCache, room
from mlxfill.request.options import make_options
from mlxfill.resume.identity import lasting
from mlxfill.rules import is_whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import mlx.core as mx
    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mlxfill.audit.audit import Audit, AuditedRun
    from mlxfill.checkpoint.checkpoint import Checkpoint
    from mlxfill.config import Config
    from mlxfill.contracts import Event, Request
    from mlxfill.decode.run import Run
    from mlxfill.forward.runner import TargetRunner
    from mlxfill.model.reading import Stream
    from mlxfill.policy.cost import CostCurve
    from mlxfill.policy.drafter import Drafter
    from mlxfill.request.keywords import PromptInput, RequestOptions, ResumeOptions
    from mlxfill.request.options import Options
    from mlxfill.request.results import Piece, Result


class Engine:
    """One bound model and the plugins that are on.  A context manager.

    One request at a time and thread.  Guesses are verified as in speculative decoding (Leviathan,
    Kalman, Matias: "Fast Inference from Transformers via Speculative Decoding", 2023), but by
    equality with the target's own draw for the position, so that a reply does not depend on who
    guessed.
    """

    def __init__(  # noqa: PLR0913
        self,
        model: nn.Module,
        tokenizer: TokenizerWrapper,
        *,
        plugins: Sequence[str] | PluginManager | None = None,
        config: Config | str | os.PathLike[str] | Mapping[str, Any] | None = None,
        draft: str | os.PathLike[str] | None = None,
        draft_kind: str | None = None,
        num_draft_tokens: int | None = None,
        path: Path | None = None,
        context: int | None = None,
        curve: CostCurve | None = None,
        stream: Stream | None = None,
        group: mx.distributed.Group | None = None,
    ) -> None:
        """Bind a model and tokenizer that mlx-lm has loaded; the rest is as for ``load``.

        :param path: the model's folder, where plugins look for a drafter.
        :param context: most tokens of prompt and reply together; None: unbounded.
        :param curve: a known cost curve; measured when first needed otherwise.
        :param stream: mlx stream to compute on, mlx-lm's generation stream by default.
        :param group: the ranks that ``model`` was sharded over (``model.shard(group)``), if it was.
        :raises InputError: model or tokenizer is none, a name for instance.
        """
        from mlx_lm.generate import generation_stream
        from mlx_lm.tokenizer_utils import TokenizerWrapper

        check_process()
        check_loaded(model, tokenizer)
        if num_draft_tokens is not None and not (
            is_whole(num_draft_tokens) and num_draft_tokens >= 0
        ):
            message = f"num_draft_tokens must be 0 or more, not {num_draft_tokens!r}"
            raise InputError(message)
        self.config = load_config(config)
        self.plugins = (
            plugins
            if isinstance(plugins, PluginManager)
            else PluginManager.load(self.config, plugins)
        )
        self.model = model
        self.tokenizer = with_exact_text(
            tokenizer if isinstance(tokenizer, TokenizerWrapper) else TokenizerWrapper(tokenizer)
        )
        self.context = context
        self.tracing = Tracing()
        self.markers = ContentMarkers(self.tokenizer)
        self.num_draft_tokens = (
            self.config.num_draft_tokens if num_draft_tokens is None else num_draft_tokens
        )
        self.mlx_stream = generation_stream if stream is None else stream
        self.team = RankGroup(group, self.mlx_stream)
        if self.team.size > 1:
            self.team.check_same("setup", *self._setup())
        self.target = Target(model, self.tokenizer, path)
        self.faults: list[Fault] = list(self.plugins.faults)
        rewinder = PluginRewinders(self.plugins, self.target, self.faults)
        gated = self.config.gate.enabled
        self.learnt = ModelProfile(self.target, self.team, rewinder, gated=gated, curve=curve)
        bounds = self.config.cache
        self.prompts = PrefixCache(bounds.max_entries, room(bounds.max_mb))
        self._shared = Resources(
            config=self.config,
            plugins=self.plugins,
            target=self.target,
            tokenizer=self.tokenizer,
            context=context,
            team=self.team,
            stream=self.mlx_stream,
            num_draft_tokens=self.num_draft_tokens,
            rewinder=rewinder,
            learnt=self.learnt,
            prompts=self.prompts,
            starts=SharedPrefixes(),
            tracing=self.tracing,
            unread=TemplateChecks(self.tokenizer),
            faults=self.faults,
            made_by={"model": lasting(path)},
        )
        self._closed = False
        try:
            self._mount(
                self.config.draft if draft is None else draft,
                self.config.draft_kind if draft_kind is None else draft_kind,
            )
        except BaseException:
            self.target.close()
            raise
        self.faults += [fault for fault in self.plugins.faults if fault not in self.faults]
        settle_randomness()
        drafter = self.drafter and (self.drafter.plugin, self.drafter.provider.weights_bytes)
        self.team.check_same("drafter", drafter)

    # --- requests -----------------------------------------------------------------

    def stream(
        self,
        prompt: PromptInput,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Run:
        """Generate piece by piece.

        :param prompt: a string or ids (taken as they are), or chat messages (through the template).
        :param tools: functions that the model may call, in OpenAI's format.
        :param options: fields of ``Options`` and ``Sampling``: ``max_tokens``, ``stop``, ...
        :returns: an iterator of ``Piece``; leave it at any time.
        :raises InputError, TemplateError, CacheMismatchError: before anything is computed.
        """
        opening, made = self._opening(prompt, tools, options)
        return opening.run(made, tools)

    def generate(
        self,
        prompt: PromptInput,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Result:
        """The same as ``stream``, collected.

        :raises InputError, TemplateError, CacheMismatchError: as ``stream``.
        :raises PluginError: a plugin that decides tokens failed.
        """
        return self.stream(prompt, tools=tools, **options).result()

    def check(
        self,
        prompt: PromptInput,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Prompt:
        """Raise what ``stream`` would raise, in any thread; computes nothing on the model.

        :returns: the prompt as it was read; ``stream`` takes it in its place.
        :raises InputError, TemplateError, CacheMismatchError: as ``stream``.
        """
        opening, made = self._opening(prompt, tools, options)
        opening.check(made, tools)
        return made

    def forward_cost(self, tokens: int) -> float:
        """Time of a forward of so many tokens, in forwards of one; measured once, then stored."""
        return self.learnt.curve().cost(tokens)

    def resume(
        self,
        source: Checkpoint | str | os.PathLike[str],
        /,
        **options: Unpack[ResumeOptions],
    ) -> Run:
        """Go on from a checkpoint: the same tokens as if the run had never stopped.

        The pieces begin with those of the stored reply.  A file goes on being replaced;
        ``checkpoint=None`` leaves it as it is.

        :param source: a file, or what ``on_checkpoint`` was handed.
        :param options: ``cancel``, ``on_checkpoint``, a greater ``max_tokens``, and what a file
            cannot hold: ``sampler``, ``logits_processors``.
        :raises CheckpointError: it is damaged, foreign, in use, of another model, or was written
            with other plugins that decide tokens.
        """
        from mlxfill.engine.resume import resume

        self._require_open()
        return resume(self._shared, source, options)

    def generate_batch(
        self,
        requests: Iterable[Mapping[str, Any]],
        *,
        max_rows: int = MAX_ROWS,
        on_piece: Callable[[int, Piece], None] | None = None,
    ) -> list[Result]:
        """Several requests together, each as it would be alone; results in the order given.

        :param requests: mappings with ``prompt`` or ``messages``, and the keywords of ``generate``.
        :param max_rows: most requests that are decoded at once.
        :param on_piece: called with a request's number and each of its pieces.
        :raises InputError, TemplateError: names the number of the request, before anything is
            computed.
        """
        from mlxfill.batch.scheduler import RowScheduler
        from mlxfill.engine.batch import generate_batch

        rows, asked = RowScheduler(self, max_rows=max_rows), list(requests)
        self.team.check_same("number of requests, or max_rows", len(asked), max_rows)
        return generate_batch(rows, asked, self.stream, on_piece)

    def audit(
        self,
        prompt: PromptInput,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Audit:
        """As ``generate``, then checked token by token against plain decoding (docs/audit.md)."""
        audited = self.audited(prompt, tools=tools, **options)
        audited.run.result()
        for _ in audited.steps():
            pass
        return audited.found

    def audited(
        self,
        prompt: PromptInput,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Unpack[RequestOptions],
    ) -> AuditedRun:
        """A run to be checked when it has ended, step by step between other work.

        :raises InputError: also for an option that cannot be repeated (``prompt_cache``), and a
            plugin that generates in another way than token by token.
        """
        from mlxfill.audit.audit import AuditedRun

        if options.get("prompt_cache") is not None:
            raise InputError("an audit repeats the prompt: give cache, not prompt_cache")
        events: list[Event] = []
        with self.tracing.into(events.append):
            run = self.stream(prompt, tools=tools, **options)
        return AuditedRun(run, events, self.forwarder)

    def _opening(
        self,
        prompt: PromptInput,
        tools: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any],
    ) -> tuple[RequestBuilder, Prompt]:
        self._require_open()
        settled = make_options(attrs.asdict(self.config.generation), options)
        markers = self.markers if settled.special_tokens_in_content == TEXT else None
        made = make_prompt(
            self.tokenizer,
            prompt,
            tools,
            settled.template_options,
            markers=markers,
            context=self.context,
        )
        return RequestBuilder(self._shared, settled, list(self.faults)), made

    def forwarder(self, request: Request, options: Options, faults: list[Fault]) -> TargetRunner:
        """What forwards the tokens of one request, with caches and processors of its own."""
        return RequestBuilder(self._shared, options, faults).forwarder(request)

    # --- what it is and what it can --------------------------------------------------------

    @property
    def drafter(self) -> Drafter | None:
        """What drafts for every request that does not say otherwise."""
        return self._shared.drafter

    @property
    def made_by(self) -> dict[str, Any]:
        """The arguments of ``load``, for whoever resumes a checkpoint elsewhere."""
        return self._shared.made_by

    def no_rewind(self) -> str:
        """Why caches of this model cannot be taken back; "" when they can (tried, not assumed)."""
        return self.learnt.no_rewind()

    def no_rows(self) -> str:
        """Why requests cannot share forwards of this model; "" when they can (tried as well)."""
        return self.learnt.no_rows()

    def prepare(self) -> None:
        """Do now what the first long request would wait for: try rewinds, measure costs.

        Up to a second's work, which requests for a few tokens do without.
        """
        hooks = {hook for name in self.plugins.names for hook in self.plugins.hooks(name)}
        offering = not hooks.isdisjoint({"mlxfill_proposal_sources", "mlxfill_constraint"})
        if offering or self.drafter is not None:
            self.learnt.no_rewind()
            self.learnt.curve()
        if self.drafter is not None:
            self.learnt.time_drafts(self.drafter, self.num_draft_tokens, self.mlx_stream)

    def _setup(self) -> tuple[object, ...]:
        """What decisions depend on, all ranks alike."""
        config = self.config
        shapes = [(name, array.shape, array.dtype) for name, array in parameters(self.model)]
        versions = [version(name) for name in ("mlxfill", "mlx", "mlx-lm")]
        return (
            *(config.generation, config.gate, config.trust, config.plugins.tables),
            *(self.plugins.names, self.num_draft_tokens, shapes, versions),
        )

    # --- adapters and drafter -----------------------------------------------------------

    def mount_adapter(self, name: str, folder: str | os.PathLike[str]) -> None:
        """Let requests switch a LoRA adapter on by its name: ``generate(..., adapters=name)``.

        Requests under different adapters never share a forward, nor a prompt cache.

        :param folder: as mlx-lm's training leaves it.
        :raises ModelError, ModelNotFoundError: it is not there or does not fit the model.
        :raises InputError: the name is taken.
        """
        self._require_open()
        self.target.adapters.mount(name, folder)
        settle_randomness()
        drafter = self.drafter
        if drafter is not None and not drafter.provider.supports_target_adapters:
            said = f"learned without adapters: under {name!r} more of its guesses may be refused"
            self.faults.append(Fault(drafter.plugin, "adapters", said, notice=True))

    def _mount(self, artifact: str | os.PathLike[str] | None, name: str | None) -> None:
        """Load the drafter that was asked for, or the head that lies in the model's folder."""
        asked = artifact is not None or name is not None
        if artifact in (None, AUTO) and self.num_draft_tokens == 0:
            return
        if artifact == AUTO:
            self._shared.drafter, said = mount_best(
                self.plugins, self.target, name, self.learnt.no_rewind, self.learnt.curve
            )
            self.faults.append(Fault("engine", "draft", said, notice=True))
            return
        folder = self.target.path
        found = (
            bundled(self.plugins, folder, self.faults, name) if folder and not artifact else None
        )
        if not asked and found is None:
            told = passed_over(self.plugins, folder) if folder else ""
            self.faults += [Fault("engine", "draft", told, notice=True)] if told else []
            return
        try:
            self._shared.drafter = mount(
                self.plugins, self.target, found or artifact, name, self.learnt.no_rewind
            )
        except DrafterError as error:
            if asked:
                raise
            self.faults.append(Fault("engine", "draft", f"{error}; going on without"))
            return
        if found and folder:
            self.faults.append(Fault(found.plugin, "draft", found.told(folder), notice=True))

    def _require_open(self) -> None:
        check_process()
        if self._closed:
            raise InputError("the engine is closed: load the model again")

    # --- end ---------------------------------------------------------------------------

    def close(self) -> None:
        """Unbind the model, keep what was learnt about costs.  Safe to call twice."""
        self._closed = True
        self.prompts.close()
        if self.drafter is not None:
            with recorded(self.drafter.plugin, "close", self.faults):
                self.drafter.provider.close()
            self._shared.drafter = None
        self.learnt.keep()
        self.target.close()

    def __reduce__(self) -> Never:
        """There is one of it.  A ``TypeError`` for whoever copies it or sends it elsewhere."""
        raise TypeError("an engine cannot be copied: load the model again, in each process itself")

    def __enter__(self) -> Self:
        """The engine itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
