"""The file of a checkpoint: safetensors, sealed with a digest, replaced in one step.

The metadata of the file names format, version and digest; ``content`` is the JSON part as bytes,
every other tensor is an array.  The digest is the SHA-256 of the whole file with the digest itself
written as zeros, so that no byte of it can change unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import mlx.core as mx

from mlxfill.errors import CheckpointError
from mlxfill.installing import pip_install
from mlxfill.loading.forked import check_process
from mlxfill.whole import replacing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT, VERSION = "mlxfill checkpoint", 1
CONTENT = "content"
UNSEALED = "0" * 64
_MARK = b'"digest":"'
_PREFIX = 8
"""Bytes that say how long the header is."""
_MOST_HEADER = 1 << 28
_CHUNK = 1 << 20


def write(
    path: Path, content: Mapping[str, Any], arrays: Mapping[str, mx.array], *, finished: bool
) -> None:
    """Replace ``path`` by a checkpoint, or leave it as it is.

    :param arrays: evaluated; may be written by another thread than the one that made them.
    :raises OSError: it cannot be written.
    """
    check_process()
    text = json.dumps(content, separators=(",", ":")).encode()
    tensors = {**arrays, CONTENT: mx.array(cast("Any", memoryview(text)))}
    metadata = {
        "digest": UNSEALED,
        "finished": str(finished).lower(),
        "format": FORMAT,
        "version": str(VERSION),
    }
    with replacing(path) as file:  # given a name, mlx would not say why it cannot write
        mx.save_safetensors(file, tensors, metadata)
        _seal(file)


def read(path: Path) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """Content and arrays of a checkpoint; the file stays as it is.

    :raises CheckpointError: one line that says what is wrong with it.
    """
    check_process()
    try:
        with path.open("rb") as file:
            sealed = _metadata(_header(file, path), path)["digest"]
            whole = _digest(file) == sealed
        if whole:
            return _loaded(path)
    except OSError as error:
        raise CheckpointError(f"no checkpoint {path}: {error.strerror or error}") from error
    except CheckpointError:
        raise
    except (KeyError, ValueError, RuntimeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: it holds no generation") from error
    raise CheckpointError(f"{path} is damaged: its digest does not match its content")


def _loaded(path: Path) -> tuple[dict[str, Any], dict[str, mx.array]]:
    loaded: Any = mx.load(str(path), format="safetensors")
    arrays = cast("dict[str, mx.array]", loaded)
    content = json.loads(bytes(cast("Any", arrays.pop(CONTENT))))
    mx.eval(arrays)
    return content, arrays


def unfinished(path: Path) -> bool:
    """Whether ``path`` is a checkpoint of a generation that has not ended.

    :raises CheckpointError: it is no checkpoint, or one of a newer version.
    """
    try:
        with path.open("rb") as file:
            return _metadata(_header(file, path), path).get("finished") != "true"
    except OSError as error:
        raise CheckpointError(f"no checkpoint {path}: {error.strerror or error}") from error


# --- inside ---------------------------------------------------------------------------------


def _header(file: BinaryIO, path: Path) -> bytes:
    size = int.from_bytes(file.read(_PREFIX), "little")
    header = file.read(size) if size < _MOST_HEADER else b""
    if not size or len(header) != size:
        raise CheckpointError(f"{path} is no checkpoint of mlxfill, or its end is missing")
    return header


def _metadata(header: bytes, path: Path) -> dict[str, str]:
    try:
        metadata = json.loads(header)["__metadata__"]
        known = metadata["format"] == FORMAT
        version = int(metadata["version"]) if known else 0
    except (ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise CheckpointError(f"{path} is no checkpoint of mlxfill")
    if version > VERSION:
        raise CheckpointError(
            f"{path} is of a newer mlxfill (checkpoint version {version}, this one reads"
            f" {VERSION}): {pip_install('mlxfill', options='--upgrade')}"
        )
    return cast("dict[str, str]", metadata)


def _seal(file: BinaryIO) -> None:
    """Write the digest into its place."""
    digest = _digest(file)
    file.seek(_place(file))
    file.write(digest.encode())


def _digest(file: BinaryIO) -> str:
    """SHA-256 of the file with zeros in the place of its digest."""
    place = _place(file)
    file.seek(0)
    whole = hashlib.sha256(file.read(place))
    file.seek(len(UNSEALED), os.SEEK_CUR)
    whole.update(UNSEALED.encode())
    while chunk := file.read(_CHUNK):
        whole.update(chunk)
    return whole.hexdigest()


def _place(file: BinaryIO) -> int:
    """Where the digest begins."""
    file.seek(0)
    size = int.from_bytes(file.read(_PREFIX), "little")
    at = file.read(size).find(_MARK)
    if at < 0:
        raise ValueError("no digest")
    return _PREFIX + at + len(_MARK)
