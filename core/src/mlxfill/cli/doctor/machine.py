"""The machine and the libraries that mlx computes with."""

from __future__ import annotations

import os
import platform
import re
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from attrs import frozen

BACKENDS = ("mlx-metal", "mlx-cpu", "mlx-cuda-12", "mlx-cuda-13")
"""Distributions that carry a backend of mlx; each platform has its own."""
LIBRARIES = ("mlxfill", "mlx", "mlx-lm", "transformers")
MAPS = Path("/proc/self/maps")
_FAST = re.compile(r"openblas|blis|mkl|flexiblas|armpl")
_ANY = re.compile(rf"{_FAST.pattern}|blas")
_PLACES = (
    "/usr/lib/*/openblas-pthread/libblas.so.3",
    "/usr/lib/*/openblas-openmp/libblas.so.3",
    "/usr/lib64/libopenblas*.so*",
    "/usr/lib/libopenblas*.so*",
)


@frozen
class Blas:
    """The matrix library of the CPU backend on Linux.

    ``fast``: it is a tuned one.  ``remedy``: what to do when it is not.
    """

    library: str
    fast: bool
    remedy: str | None = None


def versions() -> dict[str, str]:
    """Python and the libraries that matter, by distribution."""
    found = {"python": platform.python_version()}
    for name in (*LIBRARIES, *BACKENDS):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            if name in LIBRARIES:
                found[name] = "not installed"
    return found


def backends() -> list[str]:
    """The backends of mlx that are installed."""
    return [name for name in BACKENDS if name in versions()]


def device() -> dict[str, Any]:
    """Where mlx computes, with what it says of that device.  Needs a backend."""
    from mlxfill.policy.calibration import device_facts

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    system = f"{platform.system()} {platform.machine()}"
    return {"system": system, "cores": os.cpu_count(), "memory_bytes": memory, **device_facts()}


def blas() -> Blas | None:
    """Which BLAS is in use; None where the question does not arise.  Call it after a computation.

    A tuned library counts when it was put before the one in mlx's wheel (``LD_PRELOAD``), not
    when another wheel carries one for itself.
    """
    if not sys.platform.startswith("linux") or not MAPS.is_file() or "mlx-cpu" not in backends():
        return None
    mapped = {line.split(maxsplit=5)[-1].strip() for line in MAPS.read_text().splitlines()}
    libraries = sorted(path for path in mapped if path.startswith("/") and _ANY.search(_name(path)))
    tuned = [p for p in libraries if _FAST.search(_name(p)) and ".libs/" not in p]
    if tuned:
        return Blas(tuned[0], fast=True)
    bundled = next((p for p in libraries if "mlx" in p), "none found")
    return Blas(bundled, fast=False, remedy=_remedy())


def _name(path: str) -> str:
    """The file's name, and its folder's: Debian keeps OpenBLAS as ``openblas-pthread/libblas``."""
    return "/".join(path.rsplit("/", 2)[-2:])


def _remedy() -> str:
    for pattern in _PLACES:
        found = sorted(Path("/").glob(pattern.lstrip("/")))
        if found:
            return f"start with OpenBLAS in front: LD_PRELOAD={found[0]} mlxfill ..."
    arch = sysconfig.get_config_var("MULTIARCH") or f"{platform.machine()}-linux-gnu"
    return (
        "apt-get install libopenblas0-pthread, then "
        f"LD_PRELOAD=/usr/lib/{arch}/openblas-pthread/libblas.so.3 mlxfill ..."
    )
