"""Training of the target and of the draft model: a copy phase, then conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill_model_tiny.train.batches import copy_batches, training_batches
from mlxfill_model_tiny.train.configs import draft_config, target_config
from mlxfill_model_tiny.train.documents import training_and_validation
from mlxfill_model_tiny.train.fast_layers import fast_training
from mlxfill_model_tiny.train.files import load_tokenizer, save_model
from mlxfill_model_tiny.train.loop import Phase, fit
from mlxfill_model_tiny.train.losses import next_token_loss, next_token_quality
from mlxfill_model_tiny.train.networks import layer_states, logits_of, new_draft, new_target

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill_model_tiny.train.settings import Settings

    Forward = Callable[[Any, mx.array], mx.array]


def train_target(settings: Settings) -> list[float]:
    """Train the hybrid target into ``settings.out / "target"``; returns the loss of each step."""
    tokenizer = load_tokenizer(settings)
    mx.random.seed(settings.seed)
    model = new_target(tokenizer.get_vocab_size())
    losses = _train(
        model, lambda model, ids: logits_of(model, layer_states(model, ids)[-1]), settings
    )
    save_model(settings.target, model, target_config(tokenizer), settings.tokenizer)
    return losses


def train_draft(settings: Settings) -> list[float]:
    """Train the dense draft model into ``settings.out / "draft"``; returns the losses."""
    tokenizer = load_tokenizer(settings)
    mx.random.seed(settings.seed + 1)
    model = new_draft(tokenizer.get_vocab_size())
    losses = _train(model, lambda model, ids: model(ids), settings)
    save_model(settings.out / "draft", model, draft_config(tokenizer), settings.tokenizer)
    return losses


def _train(model: Any, forward: Forward, settings: Settings) -> list[float]:  # noqa: ANN401
    documents, held_out = training_and_validation(load_tokenizer(settings), settings)

    def loss(model: Any, ids: mx.array, weights: mx.array) -> mx.array:  # noqa: ANN401
        return next_token_loss(forward(model, ids[:, :-1]), ids[:, 1:], weights)

    def measure() -> dict[str, float]:
        return next_token_quality(lambda ids: forward(model, ids), held_out)

    copying = Phase(
        "copying",
        copy_batches(documents, 2 * settings.batch, settings.seed),
        loss,
        dict,
        settings.copy_steps,
        settings.learning_rate,
        last_rate=0.5,
    )
    conversing = Phase(
        "conversations",
        training_batches(documents, settings.batch, settings.seed),
        loss,
        measure,
        settings.steps,
        settings.learning_rate,
        last_rate=0.02,
    )
    with fast_training():
        return fit(model, copying) + fit(model, conversing)
