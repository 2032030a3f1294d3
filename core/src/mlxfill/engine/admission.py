"""What an engine cannot do for a request: refused here, before anything is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from mlxfill.chat.prompt import check_prompt
from mlxfill.errors import InputError
from mlxfill.nearest import did_you_mean
from mlxfill.prefix_cache.prefilled import counted_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    from mlxfill.chat.prompt import Prompt
    from mlxfill.contracts import Request
    from mlxfill.forward.runner import TargetRunner
    from mlxfill.model.target import Target
    from mlxfill.model.team import RankGroup
    from mlxfill.plugins import PluginManager
    from mlxfill.proposals.drafting import Drafting
    from mlxfill.proposals.session import SourceState
    from mlxfill.request.options import Options

PLAIN = (bool, int, float, str, type(None))
"""Types of options that say the same in every process."""
SOURCES_HOOK = "mlxfill_proposal_sources"
UNNAMED = 0
"""Stands for tokens in an mlx-lm ``prompt_cache`` that nobody names any more."""


def admit(
    target: Target, options: Options, prompt: Prompt, context: int | None
) -> tuple[tuple[int, ...], int]:
    """Prompt ids, and how many tokens stand before them in an mlx-lm ``prompt_cache``.

    :param context: most tokens that the model takes; None: nobody knows.
    :raises InputError: names the value that this model cannot use.
    """
    target.adapters.check(options.adapters)
    ids, unnamed = prompt.ids, 0
    if options.input_embeddings is not None:
        ids = _embedded(target, ids, options.input_embeddings)
    if options.prompt_cache is not None and not all(c.empty() for c in options.prompt_cache):
        check_named(options)
        # Recurrent states do not count their tokens; they need no positions either.
        unnamed = counted_tokens(options.prompt_cache) or 0
    check_prompt(ids, target.vocab_size, None if context is None else context - unnamed)
    at = options.snapshot_at
    if at is not None and at >= len(ids):
        raise InputError(f"snapshot_at must be 1 to {len(ids) - 1} for this prompt, not {at}")
    return ids, unnamed


def check_named(options: Options) -> None:
    """Refuse what would hand out caches as if they held nothing but the prompt and its reply."""
    for name in ("keep_cache", "on_prefill_done"):
        if getattr(options, name):
            raise InputError(
                f"{name} needs to know all that the caches hold: give cache, not prompt_cache"
            )


def check_snapshot(options: Options, cached: int) -> None:
    """Refuse a snapshot of fewer than the ``cached`` tokens that the caches hold already."""
    at = options.snapshot_at
    if at is not None and at < cached:
        raise InputError(
            f"snapshot_at must be at least {cached}, what the given cache holds, not {at}"
        )


def check_team(team: RankGroup, options: Options, request: Request) -> None:
    """Refuse what the ranks of a team would not decide alike."""
    if team.size == 1:
        return
    if options.cancel is not None:
        raise InputError(
            f"cancel cannot reach {team.size} ranks at the same token: stop reading the pieces"
            " at the same one on every rank instead"
        )
    values = attrs.asdict(options, recurse=False).items()
    told = [(name, _comparable(value)) for name, value in values]
    ends = sorted(request.eos_ids), sorted(request.delimiters)
    team.check_same(
        "request", request.prompt_ids, request.tools, request.sampling, request.schema, ends, told
    )


def _comparable(value: object) -> object:
    """What the ranks can compare of an option: of functions and arrays, that they are there."""
    if isinstance(value, tuple):
        return [_comparable(each) for each in value]
    return value if isinstance(value, PLAIN) else type(value).__name__


def check_alike(
    team: RankGroup,
    forwarder: TargetRunner,
    seats: Sequence[SourceState],
    drafting: Drafting | None,
) -> None:
    """Refuse a request that plugins or earlier ones have made another on some rank of a team."""
    team.check_same(
        "set of plugins at work, or another number of tokens in its caches",
        [seat.plugin for seat in seats],
        drafting is not None and drafting.alive,
        len(forwarder.processors),
        forwarder.held,
    )


def check_sources(plugins: PluginManager, options: Options) -> None:
    """Refuse a plugin that is not on: it cannot propose anything."""
    on = plugins.names
    for name in options.sources or ():
        if name not in on:
            able = [each for each in on if SOURCES_HOOK in plugins.hooks(each)]
            known, hint = ", ".join(able) or "none", did_you_mean(name, able)
            raise InputError(
                f"sources names {name[:80]!r}, which is not on{hint}; on and able to propose"
                f" are: {known}"
            )


def _embedded(target: Target, ids: tuple[int, ...], embeddings: Sized) -> tuple[int, ...]:
    """The prompt's ids, or ids that stand for its embeddings."""
    from mlx_lm.utils import does_model_support_input_embeddings

    if not does_model_support_input_embeddings(target.model):
        raise InputError("this model takes no input_embeddings")
    if ids and len(ids) != len(embeddings):
        raise InputError(f"input_embeddings has {len(embeddings)} rows, the prompt {len(ids)} ids")
    return ids or (UNNAMED,) * len(embeddings)
