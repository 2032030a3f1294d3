"""The decode engine.  ``Engine``, ``Result``, ``Piece`` and ``load`` are its public names."""

from mlxfill.engine.checkpoint.checkpoint import Checkpoint
from mlxfill.engine.engine import Engine
from mlxfill.engine.loading import load
from mlxfill.engine.results import Piece, PromptCache, Result, Stats
from mlxfill.engine.run import Run
from mlxfill.engine.scheduler import RowScheduler

__all__ = [
    "Checkpoint",
    "Engine",
    "Piece",
    "PromptCache",
    "Result",
    "RowScheduler",
    "Run",
    "Stats",
    "load",
]
