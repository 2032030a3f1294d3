"""Which matrix library the measurements run on.

On Linux the CPU build of mlx brings a reference BLAS in which n tokens cost n steps.  With
OpenBLAS in its place a few tokens cost little more than one, as on other hardware.  Libraries
can only be put first before a process starts, so the benchmark starts itself anew.
"""

from __future__ import annotations

import ctypes.util
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK = "MLXFILL_BENCHMARK_BLAS"
_MAPPED = Path("/proc/self/maps")


def restart_with_openblas() -> None:
    """Start this program again with OpenBLAS first and one thread; once, Linux only."""
    if sys.platform != "linux" or _MARK in os.environ:
        return
    library = ctypes.util.find_library("openblas")
    if library is None:
        print(
            "OpenBLAS was not found (apt install libopenblas0): measuring on mlx's own BLAS",
            file=sys.stderr,
        )
        return
    preload = f"{library}:{os.environ.get('LD_PRELOAD', '')}".rstrip(":")
    changes = {_MARK: "openblas", "LD_PRELOAD": preload, "OPENBLAS_NUM_THREADS": "1"}
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **changes})  # noqa: S606


def restarted() -> bool:
    """Say whether this process was started with OpenBLAS first."""
    return os.environ.get(_MARK) == "openblas"


def without_openblas() -> dict[str, str]:
    """Give the environment for a child that must run on what mlx itself brings."""
    kept = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    return {**kept, _MARK: "bundled"}


@contextmanager
def removed() -> Iterator[None]:
    """Let programs started inside the block start as a user's would."""
    preload = os.environ.pop("LD_PRELOAD", None)
    try:
        yield
    finally:
        if preload is not None:
            os.environ["LD_PRELOAD"] = preload


def loaded_blas() -> str:
    """Name the BLAS of this process, as the header of a report shows it."""
    if not _MAPPED.is_file():
        return "the platform's"
    if "openblas" in _MAPPED.read_text(encoding="utf-8"):
        return f"OpenBLAS with {os.environ.get('OPENBLAS_NUM_THREADS', 'all')} thread"
    return "mlx's own"
