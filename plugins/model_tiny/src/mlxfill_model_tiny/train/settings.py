"""What one training run is given."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from mlxfill_model_tiny.corpus import TRAINING_SIZE


@frozen
class Settings:
    """Where and how to train; the defaults made the models in this package.

    ``steps`` counts batches of conversations, ``copy_steps`` batches of the copy task
    before them; ``documents`` conversations are drawn, of which ``batch`` make a step (the
    short rows of the copy task: twice as many).
    """

    out: Path
    steps: int
    copy_steps: int = 0
    seed: int = 0
    documents: int = TRAINING_SIZE
    batch: int = 8
    learning_rate: float = 2e-3

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer that all parts share."""
        return self.out / "tokenizer"

    @property
    def target(self) -> Path:
        """The folder of the trained target, which teaches the MTP head."""
        return self.out / "target"

    @property
    def dflash(self) -> Path:
        """The folder of the block drafter."""
        return self.out / "dflash"
