"""Answers of hooks, checked before anyone relies on them.

Each function takes what a plugin returned and gives it back typed, or raises ``TypeError``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any, cast

import attrs

from mlxfill.contracts import (
    CacheRewinder,
    Constraint,
    DraftKind,
    GenerationMethod,
    ProposalSource,
)

MOST = 1_000_000
"""Answers of one hook: as many as delimiters can be, and an end to those that never end."""
LogitsProcessor = Callable[[Any, Any], Any]
"""mlx-lm's signature: ``(tokens [L], logits [1, V]) -> logits [1, V]``."""
_SOURCE = ("propose", "observe", "resolved")


def settings_class(answer: object) -> type:
    """An attrs class."""
    if not isinstance(answer, type) or not attrs.has(answer):
        raise TypeError(f"returned {answer!r}, not an attrs class")
    return answer


def folder(answer: object) -> Path:
    """A path."""
    if not isinstance(answer, str | os.PathLike):
        raise TypeError(f"returned {answer!r}, not a path")
    return Path(answer)


def draft_kinds(answer: object) -> list[DraftKind]:
    """Drafters that a plugin can load."""
    kinds = _listed(answer)
    for kind in kinds:
        if not isinstance(kind, DraftKind):
            raise TypeError(f"returned {kind!r} among its draft kinds")
    return cast("list[DraftKind]", kinds)


def delimiters(answer: object) -> frozenset[int]:
    """Token ids."""
    ids = _listed(answer)
    for each in ids:
        if not isinstance(each, int) or isinstance(each, bool):
            raise TypeError(f"returned {each!r} among its delimiters, not a token id")
    return frozenset(cast("list[int]", ids))


def proposal_sources(answer: object) -> list[ProposalSource]:
    """Sources of one request."""
    sources = _listed(answer)
    for source in sources:
        _require(source, *_SOURCE)
    return cast("list[ProposalSource]", sources)


def constraint(answer: object) -> Constraint:
    """What holds one reply to its schema."""
    _require(answer, *_SOURCE, "mask", "complete")
    return cast("Constraint", answer)


def logits_processors(answer: object) -> list[LogitsProcessor]:
    """Logits processors of one request."""
    processors = _listed(answer)
    for processor in processors:
        if not callable(processor):
            raise TypeError(f"returned {processor!r} among its logits processors")
    return cast("list[LogitsProcessor]", processors)


def cache_rewinder(answer: object) -> CacheRewinder:
    """A rewinder of one cache entry."""
    _require(answer, "begin", "commit", "rewind")
    return cast("CacheRewinder", answer)


def generation_method(answer: object) -> GenerationMethod:
    """Another way to generate."""
    _require(answer, "name", "generate")
    return cast("GenerationMethod", answer)


def anything(answer: object) -> object:
    """An answer that nobody reads."""
    return answer


def _listed(answer: object) -> list[object]:
    if not isinstance(answer, Iterable) or isinstance(answer, str | bytes):
        raise TypeError(f"returned {answer!r}, not a list")
    listed = list(islice(answer, MOST + 1))
    if len(listed) > MOST:
        raise TypeError(f"returned more than {MOST} answers")
    return listed


def _require(answer: object, *names: str) -> None:
    missing = [name for name in names if not hasattr(answer, name)]
    if missing:
        raise TypeError(f"returned {answer!r}, which has no {' and no '.join(missing)}")
