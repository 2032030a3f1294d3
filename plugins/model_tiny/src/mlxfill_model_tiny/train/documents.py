"""Conversations as token ids, with the tokens marked that the model must write itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from mlxfill import InputError
from mlxfill_model_tiny.corpus import training_transcripts, validation_transcripts
from mlxfill_model_tiny.corpus.template import rendered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from mlxfill_model_tiny.corpus import Transcript
    from mlxfill_model_tiny.train.settings import Settings

LONGEST = 513
"""Longer conversations (tokens) are left out."""

_LARGEST_VALIDATION = 128
_NO_THOUGHT = "<think>\n\n</think>\n\n"


@frozen(eq=False)
class Document:
    """``ids`` ``[L]`` int32; ``own`` ``[L]`` float32, 1 where the assistant writes, else 0."""

    ids: NDArray[np.int32]
    own: NDArray[np.float32]


def training_and_validation(
    tokenizer: Tokenizer, settings: Settings
) -> tuple[list[Document], list[Document]]:
    """The two sets of ``settings``.

    :raises mlxfill.InputError: the training set does not fill one batch.
    """
    training = encoded(tokenizer, training_transcripts(settings.documents, settings.seed))
    if len(training) < settings.batch:
        raise InputError(
            f"--documents {settings.documents} leaves {len(training)} conversations of at most "
            f"{LONGEST} tokens, fewer than --batch {settings.batch}: ask for more documents"
        )
    size = min(settings.documents, _LARGEST_VALIDATION)
    return training, encoded(tokenizer, validation_transcripts(size, settings.seed))


def encoded(tokenizer: Tokenizer, transcripts: Iterable[Transcript]) -> list[Document]:
    """All ``transcripts`` that are not too long."""
    marks = _Marks(tokenizer)
    texts = [rendered(transcript) for transcript in transcripts]
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [marks.document(each.ids) for each in encodings if len(each.ids) <= LONGEST]


class _Marks:
    """Finds the assistant's turns among token ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        def ids(text: str) -> list[int]:
            return list(tokenizer.encode(text, add_special_tokens=False).ids)

        self._opening = ids("<|im_start|>assistant\n")
        self._thinking = ids("<think>\n")
        self._no_thought = ids(_NO_THOUGHT)
        self._end = ids("<|im_end|>")[0]

    def document(self, ids: list[int]) -> Document:
        own = np.zeros(len(ids), dtype=np.float32)
        for at in range(len(ids)):
            if self._stands(self._opening, ids, at):
                start = at + len(self._opening)
                # The prompt gives an empty thought whole, but only the opening of a real one.
                given = (
                    self._no_thought
                    if self._stands(self._no_thought, ids, start)
                    else self._thinking
                )
                own[start + len(given) : ids.index(self._end, at) + 1] = 1
        return Document(np.array(ids, dtype=np.int32), own)

    @staticmethod
    def _stands(part: list[int], ids: list[int], at: int) -> bool:
        return ids[at : at + len(part)] == part
