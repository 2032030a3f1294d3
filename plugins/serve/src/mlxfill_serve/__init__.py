"""An OpenAI-compatible server for mlxfill.

::

    import uvicorn

    import mlxfill
    import mlxfill_serve

    worker = mlxfill_serve.EngineThread(lambda: mlxfill.load("tiny"))
    worker.start()
    uvicorn.run(mlxfill_serve.make_app(worker, name="tiny"), port=8080)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxfill_serve.app import make_app
    from mlxfill_serve.settings import ServeSettings
    from mlxfill_serve.worker import EngineThread

__all__ = ["EngineThread", "ServeSettings", "make_app"]

_HOMES = {"EngineThread": "worker", "ServeSettings": "settings", "make_app": "app"}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562): every start of mlxfill imports this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"mlxfill_serve.{_HOMES[name]}"), name)
