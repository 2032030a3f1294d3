"""What the core and its plugins promise each other.

A complete proposal source, which offers the two tokens that followed the last time::

    class Again:
        def __init__(self, request):
            self.ids = list(request.prompt_ids)

        def observe(self, ids):
            self.ids.extend(ids)

        def propose(self, view):
            last = view.tail(1)[0]
            for at in range(len(self.ids) - 3, -1, -1):
                if self.ids[at] == last:
                    return Proposal(tuple(self.ids[at + 1 : at + 3]), Policy.VERIFY, "again")
            return None

        def resolved(self, proposal, accepted):
            pass

Shapes: B rows, L tokens, S ids of a window, H numbers of a hidden state, V ids of the vocabulary.
Arrays of ids are integers, mostly int32; hidden states and logits have the target's dtype.
Positions count from 0, the prompt's first token.  Nothing here imports mlx: arrays appear in
annotations only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from attrs import field, frozen

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mlxfill.sampling import Sampling

MLXFILL_API = 2
"""Version of these contracts.  A plugin module states the one it was written for as
``MLXFILL_API = 2``; another number is refused by name."""


# --- sources ----------------------------------------------------------------------


class Policy(StrEnum):
    """How much a proposal claims."""

    ASSERT = "assert"
    """Determined: appended unread.  A privilege, see ``[trust] assert`` in the config."""
    VERIFY = "verify"
    """Likely: the target decides token by token."""


@frozen
class Proposal:
    """A span of token ids offered as the continuation of the session.

    ``ids``: oldest first; fewer than two are no offer.
    ``policy``: how much they claim.
    ``origin``: names the producer in results and colours: ``template``, ``schema``, ``echo``,
    ``ngram``, ``draft``, ``mtp``, ``grammar`` or a plugin's own word.
    ``delimiter_bound``: cut the span after the first of the request's delimiters; for spans copied
    from data.
    ``evidence``: length of the matched suffix that this continuation explains; acceptance
    statistics are kept by it.
    """

    ids: tuple[int, ...]
    policy: Policy
    origin: str
    delimiter_bound: bool = False
    evidence: int = 0


class TokenView(Protocol):
    """What a source sees of a session.  Valid during the call only."""

    @property
    def length(self) -> int:
        """Prompt and everything emitted so far, injected tokens included, in tokens."""

    @property
    def budget(self) -> int:
        """Tokens that the caller may still emit."""

    def tail(self, n: int) -> Sequence[int]:
        """The last ``n`` ids, fewer at the start."""


class ProposalSource(Protocol):
    """Knows tokens before the model does, without a model of its own.  One object a request.

    The optional method ``near() -> bool`` announces a likely offer after the next token: the loop
    then reads that token before it dispatches another step.  The optional mapping ``counts`` (names
    to ints) is added to ``stats.fill`` of the result.
    """

    def propose(self, view: TokenView) -> Proposal | None:
        """Offer a continuation of the session, or None.  Must be quick (microseconds).

        While the rest of an earlier proposal stands, whose first ids came true, None lets it stand
        and an answer takes its place.
        """

    def observe(self, ids: Sequence[int]) -> None:
        """Take note of tokens that entered the session after the prompt, in order."""

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        """Learn that the first ``accepted`` ids of ``proposal`` entered.  Exactly once each."""


# --- drafters ---------------------------------------------------------------------


@frozen
class DraftCheckpoint:
    """Owned, immutable state of one drafter row, fit to be stored in a safetensors file.

    ``namespace``: method, settings and weights; restoring under another one raises
    ``DrafterError``.
    ``processed_tokens``: the row's tokens but the pending one; another number raises, too.
    ``tensors``: the state.
    ``metadata``: the rest of it.
    """

    namespace: str
    processed_tokens: int
    tensors: Mapping[str, mx.array]
    metadata: Mapping[str, str] = field(factory=dict)


class DraftSampling(Protocol):
    """Draws draft tokens with the key of the target position that they predict.

    ``sampling``: the request's.
    """

    sampling: Sampling

    def draw(self, logits: mx.array, positions: Sequence[int]) -> mx.array:
        """``[B, V]`` logits, one absolute position a row, to ``[B]`` ids on the device.

        Logits are the draft model's own: temperature and filters of ``sampling`` are applied here.
        """

    def evolved(self, **changes: Any) -> DraftSampling:  # noqa: ANN401 - fields of Sampling
        """The same keys with other values of ``sampling``, for drafts drawn in their own way."""


class TargetView(Protocol):
    """What a drafter or a generation method may ask of the target.  Arrays stay on the device.

    ``layer_count``: decoder layers.
    ``hidden_size``: H.
    ``vocab_size``: V.
    ``path``: the model's folder; None for a model that was handed over in memory.
    """

    layer_count: int
    hidden_size: int
    vocab_size: int
    path: Path | None

    @property
    def tokenizer(self) -> TokenizerWrapper:
        """mlx-lm's tokenizer wrapper of the target."""

    def forward(self, ids: mx.array, cache: list[Any]) -> mx.array:
        """``[B, L]`` ids to ``[B, L, V]`` logits, by the model as it is.

        ``cache``: the caller's own, as ``new_cache`` makes it or entries in mlx-lm's interface;
        the engine's caches are not touched.
        """

    def new_cache(self) -> list[Any]:
        """An empty prompt cache of mlx-lm for this model, whatever kinds of entries it has."""

    def embed(self, ids: mx.array) -> mx.array:
        """``[B, L]`` ids to ``[B, L, H]`` rows of the target's input embedding.

        :raises DrafterError: the target has none that could be looked up.
        """

    def project(self, hidden: mx.array) -> mx.array:
        """``[B, L, H]`` normed hidden states to ``[B, L, V]`` logits of the target's own head."""

    def head_rows(self, ids: Sequence[int]) -> Callable[[mx.array], mx.array]:
        """A head for some vocabulary rows only: ``[B, L, H]`` to ``[B, L, len(ids)]``.

        Costs those rows only where the head is a plain (dense or quantized) matrix, else all.
        """


class DraftRows(Protocol):
    """Drafts for B >= 1 rows, each a sequence, at once; owns draft-side state only.

    Sequences that are decoded together draft together: each call of a round is made once, for all
    of them.  They join and leave between rounds, and some sit a round out.

    ``aux_layers``: target layers whose outputs it needs, ``()`` for none; they arrive as
    ``context``, side by side on the last axis.
    ``prefill_mode``: how much of the prompt ``prefill`` gets: ``"full"``: all, ``"tail-split"``:
    all but the last token, which comes as ``pending`` with the first draft.
    """

    aux_layers: tuple[int, ...]
    prefill_mode: Literal["tail-split", "full"]

    @property
    def row_count(self) -> int:
        """Rows at present."""

    def prefill(self, tokens: mx.array, context: mx.array | None = None) -> None:
        """Process new prompt tokens: ``[B, L]`` ids, ``[B, L, n*H]`` states of ``n`` aux layers."""

    def draft(
        self, pending: Sequence[int | None], depth: int, positions: Sequence[int]
    ) -> Sequence[Sequence[int]] | mx.array:
        """Guess up to ``depth`` ids a row after ``pending``; the returned length rules.

        ``positions`` is the absolute position of the first id to guess, a row.  A row whose
        ``pending`` is None sits the round out: it stays as it is, whatever is answered for it.
        The answer is a list of 0 to ``depth`` ids a row, or an array ``[B, d]`` still on the
        device: the engine then reads drafts and samples together.
        """

    def commit(self, accepted: Sequence[Sequence[int]], context: mx.array | None = None) -> None:
        """End a round: ids that entered a row after its ``pending``, the next pending one included.

        None entered a row that sat the round out.  ``context`` holds the states ``[B, S, n*H]`` of
        the window (``pending`` + drafts).
        """

    def consume(
        self, tokens: mx.array, lengths: Sequence[int], context: mx.array | None = None
    ) -> None:
        """Take tokens that someone else chose: ``[B, L]`` ids of which ``lengths[b]`` count."""

    def append(
        self, samplings: Sequence[DraftSampling], checkpoints: Sequence[DraftCheckpoint | None]
    ) -> None:
        """Rows join at the end, each with its sampling; a None checkpoint is an empty row.

        :raises DrafterError: a checkpoint is of another namespace, or broken.
        """

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain, in this order."""

    def capture(self, row: int) -> DraftCheckpoint:
        """The row's state, owned and immutable."""

    def close(self) -> None:
        """Release the rows."""


class DraftProvider(Protocol):
    """Lives as long as the engine; owns draft weights.

    ``id``: names it in messages.
    ``weights_bytes``: 0 without weights: its statistics then start fresh with each request.
    ``default_depth``: ids a round unless the user says otherwise, at least 1.
    ``supports_target_adapters``: false where LoRA adapters on the target make its guesses worse;
    users are told.
    ``supports_external_tokens``: whether ``consume`` works; without it a row sits a request out
    from the first token that it did not draft.
    """

    id: str
    weights_bytes: int
    default_depth: int
    supports_target_adapters: bool
    supports_external_tokens: bool

    def open(
        self,
        target: TargetView,
        samplings: Sequence[DraftSampling],
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> DraftRows:
        """Rows for one batch, each with its sampling; a None checkpoint is an empty row.

        :raises DrafterError: a checkpoint is of another namespace, or broken.
        """

    def close(self) -> None:
        """Release the weights."""


@frozen
class DraftKind:
    """One way to draft, as a plugin registers it.

    ``name``: what users write.
    ``origin``: the origin word of its tokens.
    ``detect``: whether a folder holds an artifact of this kind.
    ``load``: artifact, target and settings to a provider; raises ``DrafterError`` where they do not
    fit.
    ``needs_artifact``: false: ``load`` gets None for it.
    ``fallback``: asked last.
    ``subfolder``: where in a model's folder a drafter lies that comes with the model; it is found
    there without being named.
    ``baked``: whether a model's folder holds a drafter of this kind among its weights, or in a file
    beside them; it is found there, too, and ``load`` gets that folder.
    """

    name: str
    origin: str
    detect: Callable[[Path], bool]
    load: Callable[[Path | None, TargetView, Any], DraftProvider]
    needs_artifact: bool = True
    fallback: bool = False
    subfolder: str = ""
    baked: Callable[[Path], bool] | None = None


# --- rewinders --------------------------------------------------------------------


class CacheRewinder(Protocol):
    """Takes one cache entry back to an earlier token of the newest window.

    The optional ``needs_replay: bool`` says whether ``rewind`` may call ``LayerReplay.replay``:
    then windows are taped for it, which takes memory.  A rewinder that does not say it does.
    """

    def begin(self) -> None:
        """Before a window of two or more ids is forwarded."""

    def commit(self) -> None:
        """The window was kept whole."""

    def rewind(self, keep: int) -> None:
        """Only the first ``keep`` ids of the window remain, ``0 <= keep < S``."""


class LayerReplay(Protocol):
    """The decoder layer that fills a cache entry, as a rewinder sees it."""

    def replay(self, keep: int) -> None:
        """Call the layer again on its own input of this window, cut to ``keep`` ids."""

    def window(self) -> int:
        """Number of ids in the newest window."""


# --- requests ---------------------------------------------------------------------


@frozen
class Limits:
    """Bounds of one request, in tokens.

    ``max_tokens``: of the reply; -1: unbounded.
    ``context``: of prompt and reply together; None where the model does not say.
    """

    max_tokens: int
    context: int | None = None


@frozen
class Schema:
    """What the whole reply must be.

    ``kind``: how to read the text.
    ``text``: a JSON schema with its keys in the caller's order, a regular expression, or a Lark
    grammar from ``start``.
    """

    kind: Literal["json", "regex", "lark"]
    text: str


@frozen
class Request:
    """One request as plugins see it.

    ``prompt_ids``: the prompt as the model reads it, template included.
    ``prompt_text``: the same as text.
    ``messages``: what it was rendered from, in OpenAI's form, read-only; None for raw prompts.
    ``tools``: likewise.
    ``sampling``: how its tokens are drawn.
    ``limits``: how many there may be.
    ``tokenizer``: mlx-lm's wrapper: ``encode(text, add_special_tokens=False)``, ``decode(ids)``.
    ``render``: ``render(messages, tools, **options)`` gives the chat template's text; raises
    ``TemplateError``.
    ``eos_ids``: end the reply.
    ``delimiters``: bound copied spans.
    ``session``: the caller's name for the conversation.
    ``template_options``: options of the chat template for this prompt.
    ``schema``: what the reply must be, see ``Constraint``.
    """

    prompt_ids: tuple[int, ...]
    prompt_text: str
    messages: tuple[Mapping[str, Any], ...] | None
    tools: tuple[Mapping[str, Any], ...] | None
    sampling: Sampling
    limits: Limits
    tokenizer: TokenizerWrapper
    render: Callable[..., str]
    eos_ids: frozenset[int]
    delimiters: frozenset[int] = frozenset()
    session: str | None = None
    template_options: Mapping[str, Any] = field(factory=dict)
    schema: Schema | None = None


# --- other parts of a request -----------------------------------------------------


class Constraint(ProposalSource, Protocol):
    """Holds the reply to ``Request.schema``.  One object a request.

    What the schema leaves no choice about it may propose itself, as ``ASSERT``: it is asked
    before all other sources.  While it holds a reply, everyone else's asserts are verified.
    """

    def mask(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Rule out what may not come next: ``[1, V]`` logits to the same, ``-inf`` where illegal.

        ``tokens``: ``[L]`` ids, the prompt and what was emitted.  Called last of all processors,
        position by position; its own asserted spans may be left out.  At least one id stays finite.
        Raises ``InputError`` when the schema turns out to be too much.
        """

    def complete(self) -> bool:
        """Whether only the end can follow what was observed, or shown to ``mask`` since.

        The reply ends there.
        """


@frozen
class Fault:
    """Something that went wrong beside a request, which went on without it.

    ``plugin``: whose fault; ``engine`` for the core's own.
    ``where``: the hook or method.
    ``message``: one line.
    ``notice``: nothing failed; the caller should know of it.
    """

    plugin: str
    where: str
    message: str
    notice: bool = False

    @property
    def line(self) -> str:
        """How reports show it."""
        kind = "note" if self.notice else "fault"
        return f"{kind}: {self.plugin} ({self.where}): {self.message}"


@frozen
class Event:
    """One trace record.

    ``kind``: what happened.
    ``data``: docs/audit.md lists its keys for each kind.
    """

    kind: Literal["request", "round", "proposal", "fault", "finish"]
    data: Mapping[str, Any]


class GenerationMethod(Protocol):
    """Another way to generate, for a model that is not autoregressive.

    ``name``: stands in messages.
    """

    name: str

    def generate(self, request: Request) -> Iterable[Iterable[tuple[int, str]]]:
        """For each forward of the model, the tokens that it made final: (id, origin) pairs.

        In the order of the text; none where a forward settled nothing that can be shown yet.
        docs/generation-methods.md says what the engine does with them.

        :raises InputError: the request asks for what this method cannot do; the caller gets it.
        """
