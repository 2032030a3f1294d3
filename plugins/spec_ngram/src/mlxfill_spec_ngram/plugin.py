"""The entry point ``spec-ngram``: a proposal source for each request, and a kind of drafter."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mlxfill import DraftKind, ProposalSource, Request, TargetView, hookimpl
from mlxfill_spec_ngram.lookup import make_lookup
from mlxfill_spec_ngram.rows import NgramProvider
from mlxfill_spec_ngram.settings import NgramSettings
from mlxfill_spec_ngram.source import ORIGIN, NgramSource

MLXFILL_API = 2


@hookimpl
def mlxfill_settings() -> type[NgramSettings]:
    """The table ``[plugins.spec-ngram]``."""
    return NgramSettings


@hookimpl
def mlxfill_proposal_sources(
    request: Request, settings: NgramSettings | None
) -> list[ProposalSource]:
    """One source, which knows the prompt."""
    lookup = make_lookup(settings or NgramSettings())
    lookup.seed(request.prompt_ids)
    return [NgramSource(lookup)]


@hookimpl
def mlxfill_draft_kinds() -> list[DraftKind]:
    """Prompt lookup as a drafter, ``draft_kind="ngram"``."""
    return [
        DraftKind(
            name="ngram",
            origin=ORIGIN,
            detect=_detect,
            load=_load,
            needs_artifact=False,
        )
    ]


def _detect(_: Path) -> bool:
    """No folder is an artifact of this kind: it needs none."""
    return False


def _load(
    _artifact: Path | None, _target: TargetView, settings: NgramSettings | None
) -> NgramProvider:
    settings = settings or NgramSettings()
    return NgramProvider(settings.namespace, partial(make_lookup, settings), settings.depth)
