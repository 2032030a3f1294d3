"""Measuring the cost curve of one model on one device, once, and keeping it on disk."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill.engine.gate import MEASURED, CostCurve, points_from
from mlxfill.rewind.window import CacheWindow

if TYPE_CHECKING:
    from mlxfill.model.target import Target

CONTEXT = 48
BUDGET_S = 0.8
FORMAT = 1


def curve_for(target: Target, budget_s: float = BUDGET_S) -> CostCurve:
    """The stored curve of this model on this device, or a new one measured now."""
    path = _path(target)
    return _read(path) or store(target, measure(target, budget_s))


def store(target: Target, curve: CostCurve) -> CostCurve:
    """Keep a curve for the next start; a read-only disk is no reason to fail."""
    path = _path(target)
    points = {str(n): round(c, 4) for n, c in curve.points.items()}
    text = json.dumps({"format": FORMAT, "points": points, "rewind": round(curve.rewind, 4)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text)
        Path(file.name).replace(path)
    except OSError:
        return curve
    return curve


def _read(path: Path) -> CostCurve | None:
    try:
        data = json.loads(path.read_text())
        points = {int(n): float(c) for n, c in data["points"].items()}
        if data["format"] == FORMAT and points.get(1) == 1.0:
            return CostCurve(points, rewind=float(data["rewind"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _path(target: Target) -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("mlxfill") / "cost" / f"{fingerprint(target)}.json"


def fingerprint(target: Target) -> str:
    """What the cost of a window depends on: shapes and dtypes, device, libraries, threads."""
    from mlx.utils import tree_flatten

    shapes = [(n, p.shape, str(p.dtype)) for n, p in tree_flatten(target.model.parameters())]
    facts = [
        repr(shapes),
        mx.__version__,
        repr(sorted(device_facts().items())),
        os.environ.get("LD_PRELOAD", ""),
        os.environ.get("OPENBLAS_NUM_THREADS", ""),
        os.environ.get("OMP_NUM_THREADS", ""),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:24]


def device_facts() -> dict[str, Any]:
    """Device name, memory and the like, as mlx reports them."""
    device = mx.default_device()
    try:
        return {"device": str(device), **mx.device_info()}
    except (RuntimeError, AttributeError):
        return {"device": str(device), "cores": os.cpu_count()}


def measure(target: Target, budget_s: float = BUDGET_S) -> CostCurve:
    """Time forwards of 1, 2, 4, ... ids on a short context; stops when ``budget_s`` is spent.

    What was not reached is extrapolated.  Needs caches that can be taken back; where they
    cannot, the curve says that n ids cost n steps, which keeps speculation off.
    """
    cache = target.new_cache()
    window = CacheWindow(target, cache)
    if not window.supported:
        return CostCurve.linear()
    started = time.perf_counter()
    prompt = mx.arange(CONTEXT)[None] % target.vocab_size
    mx.eval(target.forward(prompt, cache), [c.state for c in cache])
    times: dict[int, float] = {}
    rewinds: list[float] = []
    for n in MEASURED:
        runs = 3 if n <= 2 else 2  # noqa: PLR2004
        samples = [_time(window, n) for _ in range(runs + (n == 1))][-runs:]
        times[n] = min(s[0] for s in samples)
        if n > 1:
            rewinds.append(min(s[1] for s in samples) / times[n])
        spent = time.perf_counter() - started
        if n > 1 and spent + 2 * times[n] * runs > budget_s:
            break
    return CostCurve(points_from(times), rewind=max(rewinds, default=0.0))


def _time(window: CacheWindow, n: int) -> tuple[float, float]:
    """Wall seconds of a window of ``n`` ids and of taking half of it back."""
    ids = mx.arange(1, n + 1)[None] % window.target.vocab_size
    start = time.perf_counter()
    logits = window.forward(ids)
    mx.eval(mx.argmax(logits, axis=-1))
    forwarded = time.perf_counter()
    if n == 1:
        window.commit()
        mx.eval([c.state for c in window.cache])
        return forwarded - start, 0.0
    window.rewind(n // 2)
    mx.eval([c.state for c in window.cache])
    return forwarded - start, time.perf_counter() - forwarded
