"""Measuring the cost curve of one model on one device, once, and keeping it on disk."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from importlib.metadata import version
from statistics import median
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill.disturbance import other_programs
from mlxfill.model.reading import parameters, weight_bytes
from mlxfill.policy.constants import BUSY, CALIBRATION_S, ENOUGH, NEWEST, SIZES
from mlxfill.policy.cost import CostCurve, points_from
from mlxfill.rewind.window import CacheWindow
from mlxfill.sampling import Chooser, Sampling
from mlxfill.whole import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from mlxfill.contracts import DraftProvider, DraftRows
    from mlxfill.model.reading import Stream
    from mlxfill.model.target import Target
    from mlxfill.model.team import RankGroup

    Clock = Callable[[], float]

CONTEXT = SIZES[0]
"""Tokens in the caches while windows are timed."""
STEPS = ENOUGH + 1
"""Forwards of one id in a row: one of them may be a stall.  The best of as many times counts."""
FORMAT = 1


def curve_for(
    target: Target, team: RankGroup | None = None, budget_s: float = CALIBRATION_S
) -> CostCurve:
    """The stored curve of this model on this device, or a new one measured now.

    One that was measured on a busy machine would close the gate for good.  It is stored as
    provisional and not read again; where the load did not show it, a few forwards tell.
    Ranks measure together, by one clock, and learn nothing while decoding: all of them must go
    by the same curve, and neither their disks nor their clocks agree.
    """
    if team is not None and team.size > 1:
        curve = measure(target, budget_s, team.clock)
        curve.fixed = True
        return curve
    known = stored(target)
    if known is not None:
        least = known.cost(SIZES[0]) / BUSY
        if glance(target, least) >= least:
            return known
    curve = measure(target, budget_s)
    store(target, curve)
    return curve


def stored(target: Target) -> CostCurve | None:
    """The curve on the disk, if there is one that can be read and is not provisional."""
    return _read(_path(target))


def store(target: Target, curve: CostCurve) -> str:
    """Keep a curve for the next start; a disk that takes nothing is no reason to fail.

    While other programs run it is kept as provisional: the next start measures again.

    :returns: why it could not be kept, "" when it is.
    """
    path = _path(target)
    points = {str(n): round(c, 4) for n, c in curve.points.items()}
    provisional = bool(other_programs())
    facts = {"points": points, "rewind": round(curve.rewind, 4), "provisional": provisional}
    text = json.dumps({"format": FORMAT, **facts})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        return f"{path.parent}: {error.strerror or error}"
    return ""


def _read(path: Path) -> CostCurve | None:
    """A stored curve, unless it is provisional, broken, missing or says what no clock measures."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        points = {int(n): float(c) for n, c in data["points"].items()}
        rewind = float(data["rewind"])
        known = data["format"] == FORMAT and not data.get("provisional")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    sane = all(n > 0 and 0 < c < math.inf for n, c in points.items()) and 0 <= rewind < math.inf
    return CostCurve(points, rewind=rewind) if known and sane and points.get(1) == 1.0 else None


def _path(target: Target) -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("mlxfill") / "cost" / f"{fingerprint(target)}.json"


def fingerprint(target: Target) -> str:
    """What the cost of a window depends on: shapes and dtypes, device, libraries, threads."""
    shapes = [(n, p.shape, str(p.dtype)) for n, p in parameters(target.model)]
    facts = [
        repr(shapes),
        version("mlx"),
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


def measure(
    target: Target, budget_s: float = CALIBRATION_S, clock: Clock = time.perf_counter
) -> CostCurve:
    """Time forwards of 1, 8, 2, ... ids on a short context until ``budget_s`` is spent.

    One id and eight are timed once in any case, however slow the model; what was not reached is
    interpolated.  Needs caches that can be taken back; where they cannot, the curve says
    that n ids cost n steps, which keeps speculation off.
    """
    window = _warm(target, clock)
    if window is None:
        return CostCurve.linear()
    cache = window.cache
    started = clock()
    # Whatever else the machine does makes a time longer, never shorter.
    best: dict[int, float] = {}
    rewinds: dict[int, float] = {}
    for again in range(STEPS):
        for n in (1, *SIZES):
            must = n in {1, SIZES[0]} and not again
            if not must and clock() - started + _expected(n, best) > budget_s:
                continue
            if n == 1:
                forward = _step_seconds(target, cache, STEPS, clock)
            else:
                forward, rewind = _time(window, n, clock)
                rewinds[n] = min(rewind, rewinds.get(n, math.inf))
            best[n] = min(forward, best.get(n, math.inf))
    shares = [rewind / best[n] for n, rewind in rewinds.items()]
    return CostCurve(points_from(best), rewind=median(shares))


def _expected(n: int, best: Mapping[int, float]) -> float:
    """Seconds that timing ``n`` ids once more takes, by the times of other sizes."""
    return best[1] * (STEPS if n == 1 else CostCurve(points_from(best)).cost(n))


def glance(target: Target, least: float = math.inf) -> float:
    """Relative cost of a window of ``SIZES[0]`` ids as a few forwards show it; 1.0 at least.

    Infinite where nothing can be taken back.

    :param least: as soon as the cost is no lower, it is not measured again.
    """
    clock = time.perf_counter
    window = _warm(target, clock)
    if window is None:
        return math.inf
    started = clock()
    steps: list[float] = []
    windows: list[float] = []
    while True:
        steps.append(_step_seconds(target, window.cache, 2, clock))
        windows.append(_time(window, SIZES[0], clock)[0])
        cost = max(min(windows) / min(steps), 1.0)
        if cost >= least or len(windows) == ENOUGH or clock() - started >= CALIBRATION_S:
            return cost


def _warm(target: Target, clock: Clock) -> CacheWindow | None:
    """A window on a short context, after a step; None where nothing can be taken back."""
    cache = target.new_cache()
    window = CacheWindow(target, cache)
    if not window.supported:
        return None
    prompt = mx.arange(CONTEXT)[None] % target.vocab_size
    mx.eval(target.forward(prompt, cache), [c.state for c in cache])
    _step_seconds(target, cache, 1, clock)  # the first forward of a kind also loads kernels
    return window


def _step_seconds(target: Target, cache: list[Any], steps: int, clock: Clock) -> float:
    """Wall seconds of one plain step as decoding takes it: dispatched while the last one runs."""
    token = mx.array([[1]])
    started = clock()
    for _ in range(steps):
        token = mx.argmax(target.forward(token, cache), axis=-1)
        mx.async_eval(token)
    mx.eval(token, [c.state for c in cache])
    return (clock() - started) / steps


def _time(window: CacheWindow, n: int, clock: Clock) -> tuple[float, float]:
    """Wall seconds of a window of ``n`` ids and of taking half of it back."""
    ids = mx.arange(1, n + 1)[None] % window.target.vocab_size
    start = clock()
    logits = window.forward(ids)
    mx.eval(mx.argmax(logits, axis=-1))
    forwarded = clock()
    window.rewind(n // 2)
    mx.eval([c.state for c in window.cache])
    return forwarded - start, clock() - forwarded


# --- what a draft costs ---------------------------------------------------------------------------


def measured_cost(
    target: Target,
    provider: DraftProvider,
    depth: int,
    stream: Stream,
    clock: Clock | None = None,
) -> float:
    """Cost of one draft in plain steps: a chain of ``depth`` drafts against a step, timed now.

    The better of a few runs on a short context.  Raises what the provider raises.
    """
    rows = provider.open(target, [Chooser(Sampling(seed=0))], [None])
    try:
        with mx.stream(stream):
            return _measured(target, rows, depth, clock or time.perf_counter)
    finally:
        rows.close()


def estimated_cost(  # noqa: PLR0913, PLR0917 - what is timed, and how
    target: Target,
    provider: DraftProvider,
    depth: int,
    stream: Stream,
    curve: CostCurve | None,
    clock: Clock | None = None,
) -> float:
    """Cost of one draft in plain steps: measured where it decides whether to draft.

    ``curve`` None: nothing is gated.  A drafter that cannot be timed costs what its weights
    weigh against the target's.
    """
    share = min(max(provider.weights_bytes / max(weight_bytes(target.model), 1), 0.0), 1.0)
    could_pay = curve is not None and curve.cost(1 + depth) < 1 + depth
    if not could_pay or not provider.weights_bytes:
        return share
    try:
        return measured_cost(target, provider, depth, stream, clock)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a plugin may raise anything; requests will tell
        return share


def _measured(target: Target, rows: DraftRows, depth: int, clock: Clock) -> float:
    ids = mx.arange(CONTEXT)[None] % target.vocab_size
    width = target.hidden_size * len(rows.aux_layers)
    aux_states = mx.zeros((1, CONTEXT, width), target.dtype) if width else None
    rows.prefill(ids, aux_states)
    cache = target.new_cache()
    mx.eval(target.forward(ids, cache), [c.state for c in cache])
    position = CONTEXT + 1  # of the first draft; each round below keeps its pending token only
    _timed_draft(rows, depth, position, aux_states, clock)  # the first of a kind also loads kernels
    _plain_step(target, cache, clock)
    steps: list[float] = []
    drafts: list[float] = []
    started = clock()
    while len(steps) < ENOUGH or (
        len(steps) < NEWEST and clock() - started < CALIBRATION_S / NEWEST
    ):
        steps.append(_plain_step(target, cache, clock))
        position += 1
        drafts.append(_timed_draft(rows, depth, position, aux_states, clock))
    return min(drafts) / min(steps)


def _plain_step(target: Target, cache: list[Any], clock: Clock) -> float:
    started = clock()
    mx.eval(mx.argmax(target.forward(mx.ones((1, 1), mx.int32), cache), axis=-1))
    return clock() - started


def _timed_draft(
    rows: DraftRows, depth: int, position: int, aux_states: mx.array | None, clock: Clock
) -> float:
    """Seconds a draft of a chain that is refused."""
    started = clock()
    (draft,) = rows.draft([1], depth, [position])
    mx.eval(draft)
    seconds = clock() - started
    rows.commit([[1]], None if aux_states is None else aux_states[:, :1])
    return seconds / max(len(draft), 1)
