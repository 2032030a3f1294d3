"""What a process holds, minute by minute, and whether that grows."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import statistics
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

QUANTITIES = (
    "rss_mb",
    "held_mb",
    "heap_mb",
    "active_mb",
    "cache_mb",
    "objects",
    "threads",
    "files",
)
TOLERANCE = 0.01
"""Growth in an hour, by the mean, that counts as none."""


@dataclass(frozen=True)
class Sample:
    """One look.

    ``rss_mb``: as the system counts, with what mlx and the C library keep of freed memory;
    ``held_mb``: the same once they have given it back; ``heap_mb``: what the C library has handed
    out of that.  ``active_mb``, ``cache_mb``: mlx's arrays, and the freed buffers that it kept.
    """

    minute: float
    rss_mb: float
    held_mb: float
    heap_mb: float
    active_mb: float
    cache_mb: float
    objects: int
    threads: int
    files: int
    requests: int

    def line(self) -> str:
        """For the log."""
        return (
            f"{self.minute:5.1f} min  {self.requests:6d} requests  RSS {self.rss_mb:6.1f} MB  "
            f"held {self.held_mb:6.1f} MB  heap {self.heap_mb:6.1f} MB  "
            f"mlx {self.active_mb:6.2f} + {self.cache_mb:6.2f} MB  {self.objects} objects  "
            f"{self.threads} threads  {self.files} files"
        )


def look(minute: float, requests: int) -> Sample:
    """Collect what is garbage, measure, have freed memory given back, and measure again."""
    import mlx.core as mx

    gc.collect()
    rss, cache = _rss(), mx.get_cache_memory() / 1e6
    mx.clear_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return Sample(
        minute=minute,
        rss_mb=rss,
        held_mb=_rss(),
        heap_mb=_heap() / 1e6,
        active_mb=mx.get_active_memory() / 1e6,
        cache_mb=cache,
        objects=len(gc.get_objects()),
        threads=threading.active_count(),
        files=len(list(Path("/proc/self/fd").iterdir())),
        requests=requests,
    )


def _rss() -> float:
    """Megabytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks"),
            *("fordblks", "keepcost"),
        )
    )


def _heap() -> int:
    """Bytes that are allocated; 0 where the C library cannot tell."""
    told = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if told is None:
        return 0
    told.restype = _MallInfo
    info = told()
    return int(info.uordblks + info.hblkhd)


@dataclass(frozen=True)
class Slope:
    """Growth of a quantity in an hour by least squares, with its 95 % interval."""

    mean: float
    per_hour: float
    low: float
    high: float

    @property
    def flat(self) -> bool:
        """Whether no growth is the likeliest reading, or it is too small to matter."""
        return self.low <= 0 or self.per_hour <= TOLERANCE * self.mean

    def line(self, name: str) -> str:
        """For the report."""
        verdict = "flat" if self.flat else "GROWS"
        return (
            f"{name:10s} mean {self.mean:12.1f}   per hour {self.per_hour:+10.2f} "
            f"({self.low:+.2f} to {self.high:+.2f})   {verdict}"
        )


def slope(minutes: Sequence[float], values: Sequence[float]) -> Slope:
    """The line through the samples; at least three of them."""
    line = statistics.linear_regression(minutes, values)
    rest = [v - line.intercept - line.slope * m for m, v in zip(minutes, values, strict=True)]
    center = statistics.fmean(minutes)
    spread = sum((m - center) ** 2 for m in minutes)
    error = math.sqrt(sum(r * r for r in rest) / (len(rest) - 2) / spread)
    half = 2.0 * error
    return Slope(
        statistics.fmean(values),
        60 * line.slope,
        60 * (line.slope - half),
        60 * (line.slope + half),
    )


def verdict(samples: Sequence[Sample], warm: float) -> dict[str, Slope]:
    """A slope for each quantity, of the samples after ``warm`` minutes."""
    late = [sample for sample in samples if sample.minute >= warm]
    if len(late) < 3:  # noqa: PLR2004 - a line needs more than two points
        return {}
    minutes = [sample.minute for sample in late]
    return {name: slope(minutes, [asdict(s)[name] for s in late]) for name in QUANTITIES}


def as_json(samples: Sequence[Sample], slopes: dict[str, Slope]) -> dict[str, Any]:
    """All of it."""
    return {
        "samples": [asdict(sample) for sample in samples],
        "slopes": {name: {**asdict(s), "flat": s.flat} for name, s in slopes.items()},
    }
