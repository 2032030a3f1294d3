"""Synthetic agent conversations: everything that the tiny models know.

All text is made from a seed by the word lists, tools and scenarios in here; nothing
comes from outside.  Importing it needs neither mlx nor a tokenizer.
"""

from __future__ import annotations

from mlxfill_model_tiny.corpus.transcript import (
    TRAINING_SIZE,
    Transcript,
    draw_kind,
    draw_transcript,
    training_transcripts,
    transcript_of,
    transcripts,
    validation_transcripts,
)

__all__ = [
    "TRAINING_SIZE",
    "Transcript",
    "draw_kind",
    "draw_transcript",
    "training_transcripts",
    "transcript_of",
    "transcripts",
    "validation_transcripts",
]
