"""A byte-level BPE tokenizer, trained on the corpus."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer

from mlxfill_model_tiny.corpus import transcripts
from mlxfill_model_tiny.corpus.template import TEMPLATE_FILE, rendered
from mlxfill_model_tiny.train.configs import END_OF_TURN, PADDING

VOCABULARY = 1024
"""Ids, the markup below included."""

# Left out of decoded text / ordinary text to a reader of it.
_CONTROL = (PADDING, "<|im_start|>", END_OF_TURN)
_MARKUP = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)

# Words, single digits, punctuation, and runs of newlines whole whatever follows them.
# GPT-2's pattern cuts two newlines apart before a word but not at the end, so there a
# prompt that ends in newlines would be no token prefix of the finished conversation.
_PIECES = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"

_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": END_OF_TURN,
    "pad_token": PADDING,
    "bos_token": None,
    "unk_token": None,
    "add_bos_token": False,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 32768,
}


def train_tokenizer(folder: Path, documents: int, seed: int) -> Tokenizer:
    """Train on ``documents`` conversations and write the three files of a tokenizer."""
    tokenizer = _untrained()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY - len(_CONTROL) - len(_MARKUP),
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    texts = (_without_markup(rendered(each)) for each in transcripts(documents, seed + 1))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([_added(token, special=True) for token in _CONTROL])
    tokenizer.add_tokens([_added(token, special=False) for token in _MARKUP])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = json.dumps(_CONFIG, indent=1)
    (folder / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")
    shutil.copy(TEMPLATE_FILE, folder / TEMPLATE_FILE.name)
    return tokenizer


def _untrained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def _added(token: str, *, special: bool) -> AddedToken:
    return AddedToken(token, special=special, normalized=False)


def _without_markup(text: str) -> str:
    """The text between the markers: no merge may cross one."""
    for token in (*_CONTROL, *_MARKUP):
        text = text.replace(token, "\n")
    return text
