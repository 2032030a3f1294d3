"""Checkpoints of draft rows: what they must be, and which must be refused."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import evolve

from mlxfill import DraftCheckpoint, DrafterError
from mlxfill_testing.conformance.sessions.playing import short
from mlxfill_testing.conformance.words import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlxfill import DraftRows, DraftSampling
    from mlxfill_testing.conformance.breach import Breach

    Told = Callable[[str], Breach]


def check_checkpoint(checkpoint: Any, processed: int, told: Told) -> None:  # noqa: ANN401
    """Raise a breach unless this is a row's state after ``processed`` tokens, fit to be stored."""
    if type(checkpoint) is not DraftCheckpoint:
        raise told(f"captured {short(checkpoint)}, not a DraftCheckpoint")
    if type(checkpoint.namespace) is not str or not checkpoint.namespace:
        raise told(f"captured under the namespace {checkpoint.namespace!r}, not a word")
    count = checkpoint.processed_tokens
    if type(count) is not int or count != processed:
        raise told(f"captured processed_tokens {short(count)} where it was told of {processed}")
    for key, tensor in checkpoint.tensors.items():
        if type(key) is not str or not isinstance(tensor, mx.array):
            raise told(f"captured the tensor {short(key)} as {short(tensor)}, not as an mx.array")
    for key, text in checkpoint.metadata.items():
        if type(key) is not str or type(text) is not str:
            raise told(f"captured the metadata {short(key)}: {short(text)}, not strings")


def stored(checkpoint: DraftCheckpoint) -> DraftCheckpoint:
    """The checkpoint after a way through a safetensors file."""
    if not checkpoint.tensors:
        return evolve(checkpoint, metadata=dict(checkpoint.metadata))
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "row.safetensors")
        mx.save_safetensors(file, dict(checkpoint.tensors), dict(checkpoint.metadata))
        loaded: Any = mx.load(file, return_metadata=True)
        tensors, metadata = loaded
        mx.eval(tensors)
    kept = {key: metadata[key] for key in checkpoint.metadata}
    return evolve(checkpoint, tensors=tensors, metadata=kept)


def snapshot(checkpoint: DraftCheckpoint) -> dict[str, Any]:
    """What a checkpoint holds now, as plain values."""
    tensors = {
        key: tensor.astype(mx.float32).tolist() for key, tensor in checkpoint.tensors.items()
    }
    return {"tensors": tensors, "metadata": dict(checkpoint.metadata)}


def foreign(checkpoint: DraftCheckpoint) -> Iterator[tuple[str, DraftCheckpoint]]:
    """Checkpoints that no drafter may take, each with what is wrong with it."""
    yield "of another namespace", evolve(checkpoint, namespace=f"{checkpoint.namespace}-other")
    more = checkpoint.processed_tokens + 1
    yield f"that claims {more} processed tokens", evolve(checkpoint, processed_tokens=more)
    if checkpoint.tensors:
        yield "without its tensors", evolve(checkpoint, tensors={})


def check_refusals(
    rows: DraftRows, sampling: DraftSampling, checkpoint: DraftCheckpoint, told: Told
) -> None:
    """Raise a breach unless ``rows`` refuses what is foreign, and is as it was afterwards."""
    before = rows.row_count
    for words, wrong in foreign(checkpoint):
        try:
            rows.append([sampling], [wrong])
        except DrafterError:
            pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise told(
                f"refused a checkpoint {words} with {one_line(error)}: raise DrafterError"
            ) from error
        else:
            raise told(f"restored a checkpoint {words}: raise DrafterError")
        if rows.row_count != before:
            raise told(f"has {rows.row_count} rows after it refused a checkpoint, not {before}")
