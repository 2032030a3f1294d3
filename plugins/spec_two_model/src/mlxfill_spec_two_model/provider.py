"""Loading a draft model and opening rows on it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mlx.utils import tree_flatten

from mlxfill import (
    DraftCheckpoint,
    DrafterError,
    DraftSampling,
    TargetView,
    files_fingerprint,
    folder_format,
)
from mlxfill_spec_two_model.chain import DraftModel
from mlxfill_spec_two_model.rows import TwoModelRows
from mlxfill_spec_two_model.tokenizers import first_difference

if TYPE_CHECKING:
    import mlx.core as mx

    from mlxfill_spec_two_model.settings import TwoModelSettings


class TwoModelProvider:
    """A loaded draft model.  It reads tokens only, so any adapter of the target will do."""

    id = "two-model"
    default_depth = 3
    supports_target_adapters = True
    supports_external_tokens = True

    def __init__(self, model: DraftModel, settings: TwoModelSettings, identity: str) -> None:
        """``identity`` names the weights in checkpoints."""
        parameters = cast("list[tuple[str, mx.array]]", tree_flatten(model.model.parameters()))
        self.weights_bytes = sum(array.nbytes for _, array in parameters)
        self._model: DraftModel | None = model
        self._settings = settings
        self._namespace = f"two-model:{identity}:{settings.namespace}"

    def open(
        self,
        target: TargetView,  # noqa: ARG002 - the fit was checked when the model was loaded
        samplings: Sequence[DraftSampling],
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> TwoModelRows:
        """Rows for one batch; a None checkpoint is an empty row."""
        if self._model is None:
            raise DrafterError("this draft model was closed with its engine: load it again")
        rows = TwoModelRows(self._namespace, self._model, self._settings)
        rows.append(samplings, checkpoints)
        return rows

    def close(self) -> None:
        """Release the weights."""
        self._model = None


def load_provider(folder: Path, target: TargetView, settings: TwoModelSettings) -> TwoModelProvider:
    """Load the model in ``folder`` with mlx-lm's loader, quantized or not, and check the fit.

    Warns of a vocabulary of another size.

    :raises DrafterError: it cannot be loaded, or its tokenizer is not the target's.
    """
    from mlx_lm import load

    found = folder_format(folder)
    if not found.is_model:
        raise DrafterError(f"draft model {folder} cannot be loaded: it is {found.name}")
    try:
        model, tokenizer = load(str(folder))[:2]
    except Exception as error:
        reason = " ".join(str(error).split())[:400] or type(error).__name__
        raise DrafterError(f"draft model {folder} cannot be loaded: {reason}") from error
    name = f"target {target.path}" if target.path else "the target"
    probe = first_difference(tokenizer, target.tokenizer)
    if probe is not None:
        raise DrafterError(
            f"draft model {folder} encodes {probe!r} in other tokens than {name}:"
            " a draft model needs the target's tokenizer"
        )
    draft = DraftModel(model, target.vocab_size)
    if draft.vocab_size != target.vocab_size:
        warnings.warn(
            f"draft model {folder} has {draft.vocab_size} token ids, {name} has"
            f" {target.vocab_size}: ids that only one of them has are never proposed",
            stacklevel=2,
        )
    weights = sorted(folder.glob("*.safetensors"))
    return TwoModelProvider(draft, settings, files_fingerprint(weights))
