"""The public face: a model, its plugins, and requests to it.

::

    loading, compat     a name to an engine (find_model); mlx-lm's ``stream_generate``
    engine              one model, its plugins (resources: what its requests share)
    resume, batch       going on from a checkpoint; a list of requests
    builder             one request is put together:
      admission           what this engine refuses
      prefix              caches of earlier prompts
      proposers           who guesses: sources, and the drafter (load_drafter)
"""

from mlxfill.decode.run import Run
from mlxfill.engine.engine import Engine
from mlxfill.engine.loading import load
from mlxfill.request.results import Piece, PromptCache, Result, Stats

__all__ = [
    "Engine",
    "Piece",
    "PromptCache",
    "Result",
    "Run",
    "Stats",
    "load",
]
