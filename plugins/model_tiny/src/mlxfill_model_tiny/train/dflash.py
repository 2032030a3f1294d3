"""Training of the block drafter: every block of a conversation at once, taught by the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill_model_tiny.train.batches import training_batches, validation_batches
from mlxfill_model_tiny.train.block_network import BLOCK, BlockDrafter
from mlxfill_model_tiny.train.configs import dflash_config
from mlxfill_model_tiny.train.documents import training_and_validation
from mlxfill_model_tiny.train.fast_layers import fast_training
from mlxfill_model_tiny.train.files import (
    WEIGHTS,
    load_block_drafter,
    load_target,
    load_tokenizer,
    save_model,
)
from mlxfill_model_tiny.train.loop import Phase, fit
from mlxfill_model_tiny.train.losses import teacher_loss, total
from mlxfill_model_tiny.train.networks import layer_states, logits_of, project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill_model_tiny.train.documents import Document
    from mlxfill_model_tiny.train.settings import Settings

_DECAY = 0.85
"""Weight of a slot, to that of the one before: a draft counts only after all before it."""


def train_dflash(settings: Settings) -> list[float]:
    """Train the drafter into ``settings.out / "dflash"``; returns the loss of each step.

    One that is there already is trained on, with the conversations in another order.
    """
    tokenizer = load_tokenizer(settings)
    documents, held_out = training_and_validation(tokenizer, settings)
    target, _ = load_target(settings)
    config = dflash_config(tokenizer)
    mx.random.seed(settings.seed + 3)
    model = BlockDrafter(config)
    model.norm.weight = mx.array(target.model.norm.weight)  # the scale that the head is used to
    goes_on = (settings.dflash / WEIGHTS).exists()
    if goes_on:
        model = load_block_drafter(settings.dflash)
    mx.eval(model.state)

    def loss(model: BlockDrafter, ids: mx.array, weights: mx.array) -> mx.array:
        blocks = Blocks(ids, vary=True)
        guessed, teacher = guesses(target, model, blocks)
        counted = blocks.of_slots(weights) * blocks.inside * _DECAY ** mx.arange(BLOCK - 1)
        return teacher_loss(guessed, teacher, counted)

    phase = Phase(
        "dflash",
        training_batches(documents, settings.batch, settings.seed + goes_on),
        loss,
        lambda: block_agreement(target, model, held_out),
        settings.steps,
        settings.learning_rate,
        last_rate=0.02,
    )
    with fast_training():
        losses = fit(model, phase)
    save_model(settings.dflash, model, config)
    return losses


class Blocks:
    """A conversation cut into blocks: ``K`` of them one after the other.

    The first begins where the sum of the ids says, so that each conversation has cuts of its own.
    ``vary``: every other block is shorter, as a round may ask for fewer drafts.
    """

    def __init__(self, ids: mx.array, *, vary: bool) -> None:
        """``ids`` ``[B, T + 1]``."""
        self.ids = ids
        phase = ids[:, :32].sum(axis=1, keepdims=True) % BLOCK
        number = mx.arange((ids.shape[1] - 1) // BLOCK - 1)
        self.anchors = 1 + phase + number * BLOCK
        shorter = 2 + (number // 2 + phase) % (BLOCK - 1)
        whole = mx.full(shorter.shape, BLOCK)
        self.lengths = mx.where(number % 2 == 1, shorter, whole) if vary else whole

    @property
    def inside(self) -> mx.array:
        """``[B, K, BLOCK - 1]``: 1 for slots of drafts that the block has."""
        return (mx.arange(1, BLOCK) < self.lengths[..., None]).astype(mx.float32)

    def of_slots(self, values: mx.array) -> mx.array:
        """What stands in ``[B, T, ...]`` where the target says the drafts of each block.

        ``[B, K, BLOCK - 1, ...]``: the token in slot i is what the target says one position before.
        """
        at = self.anchors[..., None] + mx.arange(BLOCK - 1)
        flat = at.reshape(at.shape[0], -1)
        wide = flat.reshape(*flat.shape, *[1] * (values.ndim - 2))
        taken = mx.take_along_axis(values, wide, axis=1)
        return taken.reshape(*at.shape, *values.shape[2:])


def guesses(
    target: Any,  # noqa: ANN401 - mlx-lm's model, untyped
    drafter: BlockDrafter,
    blocks: Blocks,
) -> tuple[mx.array, mx.array]:
    """Logits ``[B, K, BLOCK - 1, V]`` of the drafter and of the target for each draft."""
    every = [mx.stop_gradient(each) for each in layer_states(target, blocks.ids[:, :-1])]
    teacher = blocks.of_slots(mx.stop_gradient(logits_of(target, every[-1])))
    states = mx.concatenate([every[layer] for layer in drafter.target_layers], axis=-1)
    anchors = mx.take_along_axis(blocks.ids, blocks.anchors, axis=1)[..., None]
    masks = mx.full((*anchors.shape[:2], BLOCK - 1), drafter.mask_id, anchors.dtype)
    embedded = mx.stop_gradient(target.model.embed_tokens(mx.concatenate([anchors, masks], -1)))
    hidden = drafter(embedded, states, blocks.anchors, blocks.lengths)
    return project(target, hidden[:, :, 1:]), teacher


def block_agreement(
    target: Any,  # noqa: ANN401 - mlx-lm's model, untyped
    drafter: BlockDrafter,
    documents: Sequence[Document],
) -> dict[str, float]:
    """How often the first draft is what the target says, and how many in a row are, on average."""
    first = run = count = 0.0
    for ids, own in validation_batches(documents):
        blocks = Blocks(ids, vary=False)
        guessed, teacher = (mx.argmax(each, -1) for each in guesses(target, drafter, blocks))
        counted = mx.cumprod(blocks.of_slots(own), axis=-1)
        right = mx.cumprod((guessed == teacher) * counted, axis=-1)
        first += total(right[..., 0])
        run += total(right)
        count += total(counted[..., 0])
    return {"first draft": first / count, "drafts in a row": run / count}
