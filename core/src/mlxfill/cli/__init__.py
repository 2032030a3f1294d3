"""The command line: ``mlxfill`` and ``python -m mlxfill``."""

from mlxfill.cli.run import main

__all__ = ["main"]
