"""Loading a drafter for a target and opening rows on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx

from mlxfill import DraftCheckpoint, DrafterError, DraftSampling, TargetView, files_fingerprint
from mlxfill_spec_dflash.config import DrafterConfig, read_config
from mlxfill_spec_dflash.drafter import Drafter
from mlxfill_spec_dflash.rows import BlockRows
from mlxfill_spec_dflash.weights import build_module, parameters, read_module_tensors


class BlockProvider:
    """A loaded drafter.  An adapter of the target shifts the states that the drafter reads a
    little: it drafts all the same.
    """

    id = "dflash"
    supports_target_adapters = True
    supports_external_tokens = True

    def __init__(self, drafter: Drafter, identity: str) -> None:
        """``identity`` names the weights in checkpoints."""
        self.weights_bytes = sum(array.nbytes for array in parameters(drafter.module).values())
        self.default_depth = drafter.config.drafts
        self._drafter: Drafter | None = drafter
        self._namespace = f"{drafter.config.method}:{identity}"

    def open(
        self,
        target: TargetView,  # noqa: ARG002 - the fit was checked when it was loaded
        samplings: Sequence[DraftSampling],
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> BlockRows:
        """Rows for one batch; a None checkpoint is an empty row."""
        if self._drafter is None:
            raise DrafterError("this drafter was closed with its engine: load it again")
        rows = BlockRows(self._namespace, self._drafter)
        rows.append(samplings, checkpoints)
        return rows

    def close(self) -> None:
        """Release the weights."""
        self._drafter = None


def load_provider(folder: Path, target: TargetView) -> BlockProvider:
    """Load the drafter in ``folder`` for ``target``.

    :raises DrafterError: it is not whole, or not for such a target.
    """
    config = read_config(folder)
    check_fit(config, folder, target)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise DrafterError(f"{folder} has no *.safetensors")
    where = files[0] if len(files) == 1 else folder
    dtype = target.embed(mx.zeros((1, 1), mx.int32)).dtype
    module = build_module(config, read_module_tensors(files), dtype, where)
    return BlockProvider(Drafter(module, config, target), files_fingerprint(files))


def check_fit(config: DrafterConfig, folder: Path, target: TargetView) -> None:
    """Whether a drafter was made for a target of this shape.

    :raises DrafterError: it was not; names both.
    """
    name = f"target {target.path}" if target.path else "the target"
    if not target.hidden_size:
        raise DrafterError(f"{name} does not give its hidden states apart: no drafter can use it")
    layers = config.target_layer_count
    for ours, theirs, what in (
        (config.hidden_size, target.hidden_size, "hidden size {}"),
        (config.vocab_size, target.vocab_size, "a vocabulary of {}"),
        (layers, target.layer_count, "a model of {} layers"),
    ):
        if ours not in {theirs, None}:
            raise DrafterError(
                f"{config.method} drafter {folder} is for {what.format(ours)}, {name} has {theirs}:"
                " a drafter serves the model that it was trained with"
            )
    if not 0 <= min(config.target_layers) <= max(config.target_layers) < target.layer_count:
        raise DrafterError(
            f"{config.method} drafter {folder} reads layers {list(config.target_layers)}, {name}"
            f" has layers 0 to {target.layer_count - 1}: a drafter serves the model that it was"
            " trained with"
        )
