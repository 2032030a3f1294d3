"""What a checkpoint holds beside its arrays, as classes: whatever is read is checked by them."""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NewType, cast, get_args, get_origin

from attrs import astuple, field, fields, frozen
from cattrs import Converter, ForbiddenExtraKeysError, transform_error

from mlxfill import rules
from mlxfill.contracts import Fault  # noqa: TC001 - cattrs resolves it
from mlxfill.errors import CheckpointError
from mlxfill.stats.counters import Counters

if TYPE_CHECKING:
    from attrs import Attribute

Packed = NewType("Packed", object)
"""What ``plain.packed`` made; ``plain.unpacked`` checks it."""
Number = NewType("Number", float)
"""A whole number or another one, as it is."""
ENDINGS = ("stop", "length")
_COUNT = rules.whole(0)
_SOME = rules.whole(1)
_AMOUNT = rules.number(0)


def _counts(_: object, attribute: Attribute[Any], value: Mapping[str, int] | list[int]) -> None:
    """Nothing below 0."""
    for each in value.values() if isinstance(value, Mapping) else value:
        _COUNT(None, attribute, each)


def _counters(_: object, attribute: Attribute[Any], value: Counters) -> None:
    """Nothing below 0 in any of them."""
    for each in astuple(value, recurse=False):
        _counts(None, attribute, [each] if isinstance(each, int) else each)


def _numbers(_: object, attribute: Attribute[Any], value: Mapping[str, Number] | None) -> None:
    """Nothing below 0, not a number or infinite."""
    for each in (value or {}).values():
        _AMOUNT(None, attribute, each if math.isfinite(each) else math.nan)


def _runs(_: object, attribute: Attribute[Any], value: list[tuple[str, int]]) -> None:
    for _word, count in value:
        _SOME(None, attribute, count)


@frozen
class StoredDrafting:
    """Counters of a drafter."""

    left_out: int = field(validator=_COUNT)
    drafted_by_position: list[int] = field(validator=_counts)
    accepted_by_position: list[int] = field(validator=_counts)
    acceptance_lengths: list[int] = field(validator=_counts)


@frozen
class StoredTally:
    """See ``tally_of``."""

    stats: Mapping[str, Number] = field(validator=_numbers)
    forwards: int = field(validator=_COUNT)
    counters: Counters = field(validator=_counters)
    offers: dict[str, int] = field(validator=_counts)
    sources: dict[str, int] = field(validator=_counts)
    phases: Mapping[str, Number] | None = field(validator=_numbers)
    drafting: StoredDrafting | None


@frozen
class StoredRequest:
    """Prompt and options, beside the prompt's ids.  ``needs``: options to be given again."""

    text: str
    messages: Packed
    tools: Packed
    options: dict[str, Packed]
    needs: list[str]


@frozen
class StoredConfig:
    """What decides of the config."""

    plugins: Packed
    trust: list[str]
    gate: bool


@frozen
class StoredOrigin:
    """Arguments of ``mlxfill.load``, where they are known."""

    plugins: list[str]
    config: StoredConfig
    model: str | None = None
    adapter_path: str | None = None
    adapters: dict[str, str] = field(factory=dict)
    draft: str | None = None
    draft_kind: str | None = None
    num_draft_tokens: int | None = field(default=None, validator=rules.whole(0, optional=True))


@frozen
class StoredDraft:
    """A drafter's state."""

    namespace: str
    processed_tokens: int = field(validator=_COUNT)
    metadata: dict[str, str]
    tensors: Packed


@frozen
class Content:
    """All of it.  ``origins``: words and how many tokens in a row have each."""

    written_with: dict[str, str]
    origin: StoredOrigin
    model: str
    deciding: dict[str, Packed]
    request: StoredRequest
    origins: list[tuple[str, int]] = field(validator=_runs)
    logprobs: list[float]
    top_logprobs: list[list[tuple[int, float]]]
    ending: str | None = field(validator=rules.one_of(None, *ENDINGS))
    faults: list[Fault]
    tally: StoredTally
    caches: Packed
    draft: StoredDraft | None
    unnamed: int = field(default=0, validator=_COUNT)


def checked(content: object) -> Content:
    """``content`` as classes.

    :raises CheckpointError: a field is missing, unknown, of another type or not legal; names the
        first one.
    """
    try:
        found = _CONVERTER.structure(content, Content)
    except (Exception, RecursionError) as error:
        first, *_ = transform_error(error, "content", _told)
        raise CheckpointError(f"its content is not legal: {' '.join(first.split())}") from error
    counters = cast("Any", content)["tally"]["counters"]
    missing = [each.name for each in fields(Counters) if each.name not in counters]
    if missing:
        raise CheckpointError(f"its content is not legal: tally.counters lacks {missing[0]}")
    return found


def _told(error: BaseException, _: type | None) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    if isinstance(error, ForbiddenExtraKeysError):
        return f"{', '.join(sorted(map(str, error.extra_fields)))} is unknown"
    return str(error)


def _exact(value: object, kind: type) -> object:
    """JSON has types: text is no number, and true is not 1."""
    if type(value) is not kind:
        raise TypeError(f"must be {_WORDS[kind]}, not {reprlib.repr(value)}")
    return value


def _number(value: object, _: object) -> object:
    if type(value) not in {int, float} or math.isnan(cast("float", value)):
        raise TypeError(f"must be a number, not {reprlib.repr(value)}")
    return value


def _list(value: object, kind: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"must be a list, not {reprlib.repr(value)}")
    (inner,) = get_args(kind)
    return [_CONVERTER.structure(each, inner) for each in value]


def _tuple(value: object, kind: object) -> tuple[Any, ...]:
    kinds = get_args(kind)
    if not isinstance(value, list | tuple) or len(value) != len(kinds):
        raise TypeError(f"must be a list of {len(kinds)}, not {reprlib.repr(value)}")
    pairs = zip(value, kinds, strict=True)
    return tuple(_CONVERTER.structure(each, inner) for each, inner in pairs)


def _table(value: object, kind: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise TypeError(f"must be an object, not {reprlib.repr(value)}")
    _, inner = get_args(kind)
    return {key: _CONVERTER.structure(each, inner) for key, each in value.items()}


def _counter(value: object, _: object) -> Counter[str]:
    return Counter(_table(value, dict[str, int]))


def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True)
    for kind in _WORDS:
        converter.register_structure_hook(kind, _exact)
    for kind in (float, Number):
        converter.register_structure_hook(kind, _number)
    converter.register_structure_hook(Packed, lambda value, _: value)
    hooks: dict[Any, Any] = {list: _list, tuple: _tuple, dict: _table, Mapping: _table}
    for origin, hook in {**hooks, Counter: _counter}.items():
        converter.register_structure_hook_func(partial(_is_of, origin), hook)
    return converter


def _is_of(origin: type, kind: object) -> bool:
    return get_origin(kind) is origin


_WORDS = {str: "text", bool: "true or false", int: "a whole number"}
_CONVERTER = _converter()
