"""Whether the parts of a checkpoint fit together, and the model that is to go on."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import attrs
import mlx.core as mx
from mlx_lm.models import cache as mlx_lm_cache

from mlxfill.checkpoint.serialize import unpacked
from mlxfill.contracts import Schema
from mlxfill.errors import CheckpointError
from mlxfill.model.reading import ids as ids_of
from mlxfill.model.reading import row
from mlxfill.request.options import Options
from mlxfill.rules import is_whole

if TYPE_CHECKING:
    from mlxfill.checkpoint.content import Content
    from mlxfill.model.target import Target

COUNTS = ("offset", "_offset", "_idx", "start_position")
"""Attributes of cache entries that say where in the sequence they are."""
SEQUENCE = -2
"""Axis of keys and values along which a cache grows."""
FLAGS = tuple(f.name for f in attrs.fields(Options) if isinstance(f.default, bool))


def is_array(value: object) -> TypeGuard[mx.array]:
    """Whether it is an array of mlx."""
    return isinstance(value, mx.array)


def stored_ids(name: str, arrays: Mapping[str, mx.array], size: int) -> list[int]:
    """The ids in the array ``name``, all of a vocabulary of ``size``."""
    array = arrays.get(name)
    if array is None or array.ndim != 1 or not mx.issubdtype(array.dtype, mx.integer):
        shown = "missing" if array is None else f"{array.dtype} of shape {array.shape}"
        raise CheckpointError(f"{name} must be a row of token ids, and is {shown}")
    found = ids_of(array)
    wrong = next((each for each in found if not 0 <= each < size), None)
    if wrong is not None:
        raise CheckpointError(f"{name} names token {wrong}; the vocabulary is 0 to {size - 1}")
    if name == "prompt" and not found:
        raise CheckpointError("prompt is empty")
    return found


def check_lengths(content: Content, prompt: int, generated: int) -> None:
    """Raise ``CheckpointError`` unless what is counted by tokens has as many."""
    counted = {
        "origins": sum(count for _, count in content.origins),
        "tally.counters.rounds": min(sum(content.tally.counters.rounds), generated),
    }
    for name, count in counted.items():
        if count != generated:
            raise CheckpointError(f"{name} counts {count} tokens, the reply has {generated}")
    cached = content.tally.stats.get("cached_tokens", 0)
    if cached > prompt:
        raise CheckpointError(f"tally.stats.cached_tokens is {cached}, the prompt has {prompt}")
    if content.caches is None and content.ending is None:
        raise CheckpointError("caches is null, and the reply has not ended")
    if content.caches is not None and content.ending == "stop":
        raise CheckpointError("ending is 'stop', and caches is not null")


def check_scores(content: Content, options: Options, generated: int) -> None:
    """Raise ``CheckpointError`` unless there are log-probabilities for all tokens, or for none."""
    wanted = {"logprobs": options.logprobs, "top_logprobs": options.top_logprobs > 0}
    for name, asked in wanted.items():
        count, right = len(getattr(content, name)), generated if asked else 0
        if count != right:
            raise CheckpointError(f"{name} has {count} entries, not {right}")


def stored_objects(name: str, value: object, arrays: Mapping[str, mx.array]) -> Any:  # noqa: ANN401
    """Messages or tools: None, or several mappings."""
    found = unpacked(value, arrays)
    legal = found is None or (
        isinstance(found, list | tuple) and all(isinstance(each, Mapping) for each in found)
    )
    if not legal:
        raise CheckpointError(f"request.{name} must be null or a list of objects")
    return found


def stored_options(stored: Mapping[str, Any], arrays: Mapping[str, mx.array]) -> dict[str, Any]:
    """Options by their names, as ``make_options`` takes them."""
    options = {name: unpacked(value, arrays) for name, value in stored.items()}
    for name in FLAGS:
        if name in options and not isinstance(options[name], bool):
            raise CheckpointError(f"options.{name} must be true or false, not {options[name]!r}")
    schema = options.get("schema")
    if schema is not None:
        try:
            options["schema"] = Schema(**schema)
        except TypeError as error:
            raise CheckpointError(f"options.schema must have kind and text: {error}") from error
    return options


# --- caches -----------------------------------------------------------------------------------


def check_caches(target: Target, caches: list[Any], count: int, options: Options) -> None:
    """Raise ``CheckpointError`` unless ``caches`` are those of ``count`` tokens of this model.

    They are compared with those of one token, which are never computed: names, shapes but for the
    length of the sequence, dtypes, and where in the sequence they are.
    """
    fresh = target.new_cache(options.max_kv_size)
    seen = target.new_cache(options.max_kv_size)
    if count:
        target.forward(row([0])[None], seen)
    for at, entry in enumerate(caches):
        like = _quantized(entry, seen[at], options)
        try:
            _compare(entry, like, fresh[at], count)
        except CheckpointError as error:
            raise CheckpointError(f"caches.{at}{error}") from None


def _quantized(entry: object, seen: object, options: Options) -> Any:  # noqa: ANN401
    """The entry to compare with: quantized, where the other is and options say so."""
    same = type(entry) is type(seen)
    if same or options.kv_bits is None or not hasattr(seen, "to_quantized"):
        return seen
    return seen.to_quantized(group_size=options.kv_group_size, bits=options.kv_bits)


def _compare(entry: object, like: object, fresh: object, count: int) -> None:
    if type(entry) is not type(like):
        raise CheckpointError(f" is a {type(entry).__name__}, not a {type(like).__name__}")
    ours, theirs, first = dict(leaves(entry)), dict(leaves(like)), dict(leaves(fresh))
    if ours.keys() != theirs.keys():
        odd = min(ours.keys() ^ theirs.keys())
        raise CheckpointError(f"{odd} is {'unknown' if odd in ours else 'missing'}")
    least = min([count, *(n for n in _bounds(entry) if n)])
    shared = type(entry).__module__ == mlx_lm_cache.__name__
    for path, value in ours.items():
        wrong = _wrong(path, value, theirs[path], count, least)
        if not shared and not path.endswith(".offset") and not _other_kind(value, theirs[path]):
            wrong = ""
        if wrong and not (count == 0 and value is first.get(path)):
            raise CheckpointError(f"{path} {wrong}")


def leaves(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a cache entry, by its path."""
    inside: Any = None
    if hasattr(value, "is_trimmable") and hasattr(value, "__dict__"):
        inside = vars(value).items()
    elif isinstance(value, Mapping):
        inside = value.items()
    elif isinstance(value, list | tuple):
        inside = enumerate(value)
    if inside is None:
        yield path, value
        return
    for key, each in inside:
        yield from leaves(each, f"{path}.{key}")


def _bounds(entry: object) -> Iterator[int]:
    """How long its arrays need to be at most."""
    for name in ("max_size", "chunk_size"):
        bound = getattr(entry, name, None)
        if is_whole(bound):
            yield bound


def _wrong(path: str, value: object, like: object, count: int, least: int) -> str:
    """What is wrong with a leaf, "" for nothing."""
    name = path.rpartition(".")[2]
    if is_array(value) and is_array(like):
        return _wrong_array(path, value, like, least)
    if name in COUNTS and is_whole(value) and is_whole(like):
        exact = name == "offset"
        right = count if like == min(count, 1) else like
        legal = value == right if exact else 0 <= value <= count
        return "" if legal else f"is {value}, where {right} tokens are held"
    same = type(value) is type(like) and value == like
    return "" if same else f"is {_shown(value)}, not {_shown(like)}"


def _shown(value: object) -> str:
    return "an array" if is_array(value) else reprlib.repr(value)


def _other_kind(value: object, like: object) -> bool:
    """What a model's own entry, of which nobody knows how it grows, cannot hold either."""
    if is_array(value) and is_array(like):
        return value.dtype != like.dtype or value.ndim != like.ndim
    return not (is_array(value) and like is None) and type(value) is not type(like)


def _wrong_array(path: str, value: mx.array, like: mx.array, least: int) -> str:
    """What is wrong with an array; keys and values may be longer than those of one token.

    So may ids that a model looks back at.
    """
    ours, theirs = list(value.shape), list(like.shape)
    grows = path.split(".")[1] in {"keys", "values"} and value.ndim == like.ndim
    if grows and ours[SEQUENCE] >= least:
        theirs[SEQUENCE] = ours[SEQUENCE]
    if mx.issubdtype(value.dtype, mx.integer) and theirs and 0 < ours[-1] <= least and not grows:
        theirs[-1] = ours[-1]
    if ours == theirs and value.dtype == like.dtype:
        return ""
    length = f" or longer than {least}" if grows else ""
    return f"is {value.dtype} of shape {ours}, not {like.dtype} of shape {theirs}{length}"
