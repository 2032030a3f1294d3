"""The command line: ``mlxfill`` and ``python -m mlxfill``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mlxfill`` with these arguments, by default those of the process.

    :returns: 0 done, 1 the work failed, 2 wrong use, 130 stopped by Ctrl-C.
    """
    try:
        from mlxfill.cli.run import main as run
    except KeyboardInterrupt:  # the imports take a while on a cold disk
        return 130
    return run(arguments)
