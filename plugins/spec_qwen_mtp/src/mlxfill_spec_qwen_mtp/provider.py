"""Loading a head for a target and opening rows on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx

from mlxfill import (
    DraftCheckpoint,
    DrafterError,
    DraftSampling,
    TargetView,
    baked_head,
    files_fingerprint,
    read_tensors,
)
from mlxfill_spec_qwen_mtp.chain import Head
from mlxfill_spec_qwen_mtp.config import HeadConfig, is_release, read_config, release_config
from mlxfill_spec_qwen_mtp.head import build_head, parameters
from mlxfill_spec_qwen_mtp.rows import MtpRows
from mlxfill_spec_qwen_mtp.tensors import Tensors, at_run_time

if TYPE_CHECKING:
    from mlxfill_spec_qwen_mtp.settings import HeldRows, MtpSettings

VOCABULARY_FILE = "draft_vocab.json"


class MtpProvider:
    """A loaded head.  An adapter of the target shifts the hidden states that the head reads a
    little: it drafts all the same.
    """

    id = "qwen-mtp"
    supports_target_adapters = True
    supports_external_tokens = True

    def __init__(self, head: Head, block_size: int, held_rows: HeldRows, identity: str) -> None:
        """``identity`` names weights and vocabulary in checkpoints."""
        self.weights_bytes = sum(array.nbytes for array in parameters(head.module).values())
        self.default_depth = block_size - 1
        self._head: Head | None = head
        self._held_rows = held_rows
        self._namespace = f"qwen-mtp:{identity}:held_rows={held_rows}"

    def open(
        self,
        target: TargetView,
        samplings: Sequence[DraftSampling],
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> MtpRows:
        """Rows for one batch; a None checkpoint is an empty row."""
        if self._head is None:
            raise DrafterError("this MTP head was closed with its engine: load it again")
        rows = MtpRows(
            self._namespace,
            self._head,
            aux_layers=(target.layer_count - 1,),
            most_drafts=self.default_depth,
            held_rows=self._held_rows,
        )
        rows.append(samplings, checkpoints)
        return rows

    def close(self) -> None:
        """Release the weights."""
        self._head = None


def load_provider(folder: Path, target: TargetView, settings: MtpSettings) -> MtpProvider:
    """Load the head in ``folder``, a split one or a release with it, for ``target``.

    :raises DrafterError: it is not whole, or not for a target of this size.
    """
    config, files, tensors = _read(folder)
    name = f"target {target.path}" if target.path else "the target"
    if not target.hidden_size:
        raise DrafterError(f"{name} does not give its hidden states apart: no MTP head can use it")
    if config.hidden_size != target.hidden_size:
        raise DrafterError(
            f"MTP head {folder} has hidden size {config.hidden_size}, {name} has"
            f" {target.hidden_size}: a head serves the model that it was trained with"
        )
    where = files[0] if len(files) == 1 else folder
    dtype = target.embed(mx.zeros((1, 1), mx.int32)).dtype
    module = build_head(config, at_run_time(tensors), dtype, where)
    if config.own_embeddings and module.embed_tokens.weight.shape[0] < target.vocab_size:
        raise DrafterError(
            f"MTP head {folder} has embeddings of {module.embed_tokens.weight.shape[0]} tokens,"
            f" {name} has {target.vocab_size}: a head serves the model that it was trained with"
        )
    vocabulary = read_vocabulary(folder, settings, target.vocab_size)
    identity = f"{files_fingerprint(files)}:vocabulary={_digest(json.dumps(vocabulary).encode())}"
    head = Head(module, target, vocabulary)
    return MtpProvider(head, config.block_size, settings.held_rows, identity)


def _read(folder: Path) -> tuple[HeadConfig, list[Path], Tensors]:
    """Config, files and tensors of a head."""
    head = baked_head(folder)
    if head is not None and head.tensors and is_release(head):
        return release_config(head), sorted(set(head.tensors.values())), head.read()
    config = read_config(folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise DrafterError(f"{folder} has no *.safetensors")
    return config, files, read_tensors(files)


def read_vocabulary(folder: Path, settings: MtpSettings, vocab_size: int) -> tuple[int, ...] | None:
    """The ids that may be drafted; None for all.

    :raises DrafterError: the file holds anything but ascending ids of the target's vocabulary.
    """
    file = Path(settings.draft_vocab).expanduser() if settings.draft_vocab else None
    if file is None:
        file = folder / VOCABULARY_FILE
        if not file.is_file():
            return None
    try:
        ids = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DrafterError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(ids, list) or not ids:
        raise DrafterError(f"{file} must hold a list of ascending token ids")
    before = -1
    for token in ids:
        if type(token) is not int or not before < token < vocab_size:
            raise DrafterError(
                f"{file} must hold ascending token ids from 0 to {vocab_size - 1}; {token!r} after"
                f" {before} is none"
            )
        before = token
    return tuple(ids)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
