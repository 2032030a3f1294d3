"""An OpenAI-compatible server for mlxfill.

::

    import httpx

    import mlxfill
    import mlxfill_serve

    with mlxfill_serve.serving(lambda: mlxfill.load("tiny")) as server:
        print(httpx.get(f"{server.url}/v1/models").json())
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxfill_serve.app import make_app
    from mlxfill_serve.local import Serving, serving
    from mlxfill_serve.settings import ServeSettings
    from mlxfill_serve.worker import EngineThread

__all__ = ["EngineThread", "ServeSettings", "Serving", "make_app", "serving"]

_HOMES = {
    "EngineThread": "worker",
    "ServeSettings": "settings",
    "Serving": "local",
    "make_app": "app",
    "serving": "local",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562): every start of mlxfill imports this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"mlxfill_serve.{_HOMES[name]}"), name)
