"""Trains the model ``alphabet``: ``python -m mlxfill_diffusion.train FOLDER``, minutes on a CPU.

The toy language: a question is two letters, the answer the run of the alphabet from the first to
the second, backwards if need be: ``ch`` is answered by ``cdefgh``, ``db`` by ``dcb``.

The objective is MaskGIT's (Chang et al. 2022): of the answer, padded with the end token, a random
share is masked, and the model guesses the masked tokens from all the others.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.optimizers import AdamW, clip_grad_norm, cosine_decay
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.llama import Model, ModelArgs

from mlxfill_diffusion.attention import BothWays

SPECIAL = ("<end>", "<ask>", "<answer>", "<mask>")
END, ASK, ANSWER, MASK = range(len(SPECIAL))
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BLOCK = 28
"""Tokens of the answer that are unmasked together."""
STEPS, BATCH, RATE = 8000, 64, 3e-3

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
    "vocab_size": len(SPECIAL) + len(LETTERS),
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": END,
    "mask_token_id": MASK,
    "block_length": BLOCK,
}
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' %}<ask>{% else %}<answer>{% endif %}"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
)


def run_of(first: int, last: int) -> list[int]:
    """The letters from one to another, as ids."""
    step = 1 if first <= last else -1
    return list(range(first, last + step, step))


def examples(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Questions, ``[count, 4]`` ids, and answers, ``[count, BLOCK]``."""
    letters = random.integers(len(SPECIAL), CONFIG["vocab_size"], (count, 2))
    questions = [[ASK, *pair, ANSWER] for pair in letters.tolist()]
    runs = [run_of(*pair) for pair in letters.tolist()]
    answers = [[*run, *[END] * (BLOCK - len(run))] for run in runs]
    return np.array(questions), np.array(answers)


def masked(random: np.random.Generator, answer: np.ndarray) -> np.ndarray:
    """Which tokens of each answer are masked: a share of its own for each, all of some."""
    share = random.uniform(1 / BLOCK, 1.3, (len(answer), 1))
    return random.uniform(size=answer.shape) < share


def loss(model: Model, question: mx.array, answer: mx.array, hidden: mx.array) -> mx.array:
    """Cross-entropy of the masked tokens, in nats a token."""
    seen = mx.where(hidden, MASK, answer)
    ids = mx.concatenate([question, seen], axis=1)
    logits = model(ids, cache=[BothWays()] * CONFIG["num_hidden_layers"])
    wrong = nn.losses.cross_entropy(logits[:, question.shape[1] :], answer)
    return (wrong * hidden).sum() / hidden.sum()


def train(seed: int = 0) -> Model:
    """The trained model, in float32."""
    mx.random.seed(seed)
    random = np.random.default_rng(seed)
    model = Model(ModelArgs.from_dict(CONFIG))
    optimizer = AdamW(cosine_decay(RATE, STEPS), weight_decay=0.01)
    step = nn.value_and_grad(model, loss)
    started = time.perf_counter()
    for at in range(STEPS):
        question, answer = examples(random, BATCH)
        hidden = masked(random, answer)
        value, gradients = step(model, *map(mx.array, (question, answer, hidden)))
        gradients, _ = clip_grad_norm(gradients, 1.0)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state, value)
        if at % 200 == 0:
            took = time.perf_counter() - started
            print(f"step {at}  loss {value.item():.3f}  {took:.0f} s", flush=True)
    return model


def save(model: Model, folder: Path) -> None:
    """Write config, float16 weights and tokenizer, as mlx-lm wants them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n", "utf-8")
    weights: Any = tree_flatten(tree_map(lambda w: w.astype(mx.float16), model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), dict(weights), {"format": "mlx"})
    _tokenizer().save_pretrained(folder)


def _tokenizer() -> Any:  # noqa: ANN401 - transformers' class, untyped
    """A letter, a token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    pieces = {piece: i for i, piece in enumerate([*SPECIAL, *LETTERS])}
    plain = Tokenizer(models.BPE(pieces, []))
    plain.decoder = decoders.Fuse()
    plain.add_special_tokens([AddedToken(piece, special=True) for piece in SPECIAL])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token=SPECIAL[END], mask_token=SPECIAL[MASK]
    )
    fast.chat_template = TEMPLATE
    return fast


if __name__ == "__main__":
    save(train(), Path(sys.argv[1]))
