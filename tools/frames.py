"""Print our own frames between a caller's ``next(run)`` and the model, for each kind of forward.

    python tools/frames.py

A plain token, a window of a source's ids and a round of a drafter, on the model ``tiny``, beside
mlx-lm's own loop.  A generator is marked with ``*``.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any, Self

import mlx.core as mx
from mlx_lm.generate import generate_step

import mlxfill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

CODE = "def build_page(text):\n    value = []\n    for item in text:\n        value.append(item)\n"


class Recorder:
    """Notes the frames above the first forward of each kind that is asked for."""

    def __init__(self, model: Any, package: str) -> None:  # noqa: ANN401 - an mlx-lm model
        self.found: dict[int, list[str]] = {}
        self._package, self._body = package, type(model.model)  # with its head or without
        self._call: Callable[..., Any] = self._body.__call__

    def __enter__(self) -> Self:
        """Watch every forward of models of this class."""

        def watched(model: Any, inputs: mx.array, *rest: Any, **named: Any) -> Any:  # noqa: ANN401
            self.found.setdefault(int(inputs.shape[-1]), self._frames(sys._getframe(1)))  # noqa: SLF001
            return self._call(model, inputs, *rest, **named)

        self._body.__call__ = watched
        return self

    def __exit__(self, *_: object) -> None:
        """Watch no more."""
        self._body.__call__ = self._call

    def _frames(self, frame: FrameType | None) -> list[str]:
        return list(self._named(frame))[::-1]

    def _named(self, frame: FrameType | None) -> Iterator[str]:
        while frame is not None:
            package, _, module = frame.f_globals.get("__name__", "").partition(".")
            if package == self._package and not module.startswith("models."):
                star = "*" if frame.f_code.co_flags & inspect.CO_GENERATOR else ""
                yield f"{module}.{frame.f_code.co_qualname}{star}"
            frame = frame.f_back


def decoded(engine: mlxfill.Engine) -> dict[int, list[str]]:
    """Frames by the size of the forward, once prompt and first tokens are through."""
    run = engine.stream(CODE * 2, max_tokens=40)
    for _ in range(3):
        next(run)
    with Recorder(engine.model, "mlxfill") as recorder:
        run.result()
    return recorder.found


def shown(title: str, frames: list[str]) -> None:
    """One kind of forward."""
    generators = sum(frame.endswith("*") for frame in frames)
    sys.stdout.write(f"{title}: {len(frames)} frames, {generators} generators\n")
    for frame in frames:
        sys.stdout.write(f"    {frame}\n")


def main() -> None:
    """Print all of them."""
    free = {"gate": {"enabled": False}}
    with mlxfill.load("tiny", plugins=["model-tiny"]) as engine:
        shown("a plain token", decoded(engine)[1])
        with Recorder(engine.model, "mlx_lm") as recorder:
            ids = mx.array(engine.tokenizer.encode(CODE))
            for _ in zip(range(4), generate_step(ids, engine.model), strict=False):
                pass
        shown("the same in mlx-lm", recorder.found[1])
    with mlxfill.load("tiny", plugins=["model-tiny", "spec-ngram"], config=free) as engine:
        found = decoded(engine)
        shown("a window of a source", found[max(found)])
    plugins = ["model-tiny", "spec-two-model"]
    with mlxfill.load("tiny", plugins=plugins, draft="tiny", config=free) as engine:
        found = decoded(engine)
        shown("a round of a drafter", found[max(found)])


if __name__ == "__main__":
    main()
