"""Training of the MTP head: two chained steps, taught by the frozen target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill_model_tiny.train.batches import training_batches, validation_batches
from mlxfill_model_tiny.train.configs import mtp_config
from mlxfill_model_tiny.train.documents import training_and_validation
from mlxfill_model_tiny.train.fast_layers import fast_training
from mlxfill_model_tiny.train.files import load_target, load_tokenizer, save_model
from mlxfill_model_tiny.train.loop import Phase, fit
from mlxfill_model_tiny.train.losses import teacher_loss, total
from mlxfill_model_tiny.train.networks import MTPHead, layer_states, logits_of, project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill_model_tiny.train.documents import Document
    from mlxfill_model_tiny.train.settings import Settings

_SECOND_STEP_WEIGHT = 0.7


def train_mtp(settings: Settings) -> list[float]:
    """Train the head into ``settings.out / "mtp"``; returns the loss of each step."""
    documents, held_out = training_and_validation(load_tokenizer(settings), settings)
    target, text_config = load_target(settings)
    mx.random.seed(settings.seed + 2)
    model = MTPHead(text_config)

    def loss(model: MTPHead, ids: mx.array, weights: mx.array) -> mx.array:
        first, second, teacher = guesses(target, model, ids)
        return teacher_loss(first[:, :-1], teacher[:, 1:], weights[:, 1:]) + (
            _SECOND_STEP_WEIGHT * teacher_loss(second[:, :-2], teacher[:, 2:], weights[:, 2:])
        )

    phase = Phase(
        "mtp",
        training_batches(documents, settings.batch, settings.seed),
        loss,
        lambda: agreement(target, model, held_out),
        settings.steps,
        settings.learning_rate,
        last_rate=0.02,
    )
    with fast_training():
        losses = fit(model, phase)
    save_model(settings.out / "mtp", model, mtp_config(text_config))
    return losses


def guesses(
    target: Any,  # noqa: ANN401 - mlx-lm's model, untyped
    head: MTPHead,
    ids: mx.array,
) -> tuple[mx.array, mx.array, mx.array]:
    """Logits ``[B, T, V]`` of the head's two steps and of the target, for ids ``[B, T + 1]``.

    The first step at p reads token p + 1 and the target's hidden state at p, and guesses
    token p + 2.  The second reads token p + 2 and the first's own output at p, and guesses
    token p + 3.  The target at p says token p + 1.
    """
    hidden = mx.stop_gradient(layer_states(target, ids[:, :-1])[-1])
    teacher = mx.stop_gradient(logits_of(target, hidden))
    embedded = mx.stop_gradient(target.model.embed_tokens(ids))
    first = head(embedded[:, 1:], hidden)
    beyond_the_end = mx.zeros_like(hidden[:, :1])
    second = head(mx.concatenate([embedded[:, 2:], beyond_the_end], axis=1), first)
    return project(target, first), project(target, second), teacher


def agreement(
    target: Any,  # noqa: ANN401 - mlx-lm's model, untyped
    head: MTPHead,
    documents: Sequence[Document],
) -> dict[str, float]:
    """How often the head's first guess, and both, are what the target says (0 to 1)."""
    one = both = count = 0.0
    for ids, own in validation_batches(documents):
        first, second, teacher = (mx.argmax(each, -1) for each in guesses(target, head, ids))
        right = (first[:, :-1] == teacher[:, 1:])[:, :-1]
        right_again = second[:, :-2] == teacher[:, 2:]
        counted = own[:, 1:-1]
        one += total(right * counted)
        both += total(right * right_again * counted)
        count += total(counted)
    return {"first guess": one / count, "both guesses": both / count}
