"""What a run is made of at a pause, as a checkpoint."""

from __future__ import annotations

from importlib.metadata import version
from itertools import groupby
from typing import TYPE_CHECKING, Any

import attrs
import mlx.core as mx

from mlxfill.checkpoint.checkpoint import Checkpoint
from mlxfill.checkpoint.serialize import packed
from mlxfill.model.reading import row
from mlxfill.request.options import Options
from mlxfill.resume.counters import tally_of

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from mlxfill.contracts import DraftCheckpoint
    from mlxfill.decode.runstate import RunState
    from mlxfill.proposals.drafting import Drafting
    from mlxfill.resume.identity import Identity

LIVE = frozenset(
    {
        *("cache", "prompt_cache", "input_embeddings", "snapshot_at", "keep_cache"),
        *("cancel", "on_prefill_done", "on_prefill_progress", "on_checkpoint", "checkpoint"),
        *("sampler", "logits_processors"),
    }
)
"""Options that belong to the process that made the request: not stored."""
NEEDED = ("sampler", "logits_processors")
"""Those among them that decide tokens: whoever resumes must give them again."""


def capture(identity: Identity, run: RunState) -> Checkpoint:
    """The state of ``run`` between two forwards: all its tokens but the newest are in the caches.

    A finished run that can go on no more is stored without its caches.

    :raises CheckpointError: it holds something that cannot be stored.
    """
    arrays: dict[str, mx.array] = {}
    tokens, prompt = run.session.tokens, run.request.prompt_ids
    ending, held = run.ending, run.forwarder.held
    resumable = held == len(tokens) - 1 and (ending is None or ending.reason == "length")
    arrays["prompt"] = row(prompt)
    arrays["tokens"] = row(run.reply.tokens)
    content: dict[str, Any] = {
        "written_with": {name: version(name) for name in ("mlxfill", "mlx", "mlx-lm")},
        "origin": identity.recipe(),
        "model": identity.fingerprint(run.options.adapters),
        "deciding": identity.settings_of(run.deciding),
        "request": packed_request(run, arrays),
        "origins": [(word, len(list(same))) for word, same in groupby(run.reply.origins)],
        "logprobs": list(run.reply.logprobs),
        "top_logprobs": list(run.reply.top_logprobs),
        "ending": None if ending is None else ending.reason,
        "faults": [attrs.asdict(fault) for fault in run.faults],
        "tally": tally_of(run),
        "caches": None,
        "draft": None,
    }
    if resumable:
        content["unnamed"] = run.forwarder.unnamed
        content["caches"] = packed(list(run.forwarder.caches), "cache", arrays)
        content["draft"] = _draft(run.drafting, tokens, held, arrays)
    # The thread that writes them shall not have to compute anything.
    arrays = {name: mx.contiguous(array) for name, array in arrays.items()}
    mx.eval(arrays)
    return Checkpoint(content, arrays, finished=ending is not None)


def packed_request(run: RunState, arrays: MutableMapping[str, mx.array]) -> dict[str, Any]:
    """Prompt and options, JSON-ready, with the seed that was chosen where none was given.

    :raises CheckpointError: they hold something that cannot be stored.
    """
    request, options = run.request, run.options
    stored = {f.name: getattr(options, f.name) for f in attrs.fields(Options)}
    sampling = {**attrs.asdict(request.sampling, recurse=False)}
    schema = None if request.schema is None else attrs.asdict(request.schema)
    stored.update(sampling=sampling, schema=schema, eos_token_ids=sorted(request.eos_ids))
    stored["delimiters"] = list(options.delimiters)
    stored["sources"] = None if options.sources is None else sorted(options.sources)
    return {
        "text": request.prompt_text,
        "messages": packed(request.messages, "messages", arrays),
        "tools": packed(request.tools, "tools", arrays),
        "options": {
            name: packed(value, name, arrays) for name, value in stored.items() if name not in LIVE
        },
        "needs": [name for name in NEEDED if getattr(options, name)],
    }


def _draft(
    drafting: Drafting | None,
    tokens: list[int],
    held: int,
    arrays: MutableMapping[str, mx.array],
) -> dict[str, Any] | None:
    state = None if drafting is None else drafting.captured(tokens, held)
    return None if state is None else packed_draft(state, arrays)


def packed_draft(state: DraftCheckpoint, arrays: MutableMapping[str, mx.array]) -> dict[str, Any]:
    """A drafter's state, JSON-ready; its arrays are added to ``arrays``."""
    return {
        "namespace": state.namespace,
        "processed_tokens": state.processed_tokens,
        "metadata": dict(state.metadata),
        "tensors": packed(dict(state.tensors), "draft", arrays),
    }
