"""Set up peers in virtual environments of their own and talk to them.

    python benchmarks/peers.py

mlx-dspark asks for many packages that its prompt lookup never imports.  It is installed
without dependencies, beside the same mlx and mlx-lm as ours and the few packages that
importing it really takes.  mtplx does not run with our mlx-lm: it gets the releases that it is
made for.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import venv
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen
from rich.console import Console

from cache_folder import DEFAULT_CACHE, cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARED = ("mlx", "mlx-lm", "mlx-cpu", "mlx-metal", "mlx-cuda-12", "mlx-cuda-13", "transformers")
"""Installed in the version that this environment has, where it has it."""
NEEDED = ("requests", "pillow")
"""What ``import mlx_dspark`` takes beyond mlx-lm."""
PEERS = ("mlx-dspark==0.20.3", "mlx-vlm==0.7.10")
MTPLX = ("mtplx==2.12.2",)
MTPLX_NEEDED = (
    "mlx[cpu]==0.32.2" if platform.system() == "Linux" else "mlx==0.32.2",
    "mlx-lm==0.31.3",
    "transformers==5.15.0",
    *("fastapi", "uvicorn", "pillow", "rich", "pydantic", "safetensors", "nanobind"),
    "llguidance>=1.8",
)
"""What mtplx's releases were made with, and what importing it takes."""

WORKER = Path(__file__).with_name("dspark_worker.py")

_console = Console(stderr=True, highlight=False)


@frozen
class Environment:
    """A virtual environment: ``bare`` packages are installed without what they ask for."""

    name: str
    packages: tuple[str, ...]
    bare: tuple[str, ...]

    def ensure(self, cache: Path = DEFAULT_CACHE) -> Path:
        """Find its Python interpreter; build it if it is missing or outdated."""
        home = cache_folder(cache) / f"venv-{self.name}"
        python, stamp = home / "bin" / "python", home / "installed.json"
        wanted = [*self.packages, *self.bare]
        if stamp.is_file() and json.loads(stamp.read_text(encoding="utf-8")) == wanted:
            return python
        _console.print(f"setting up {self.bare[0]} in {home} ...")
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        pip_install(python, self.packages)
        pip_install(python, ["--no-deps", *self.bare])
        stamp.write_text(json.dumps(wanted), encoding="utf-8")
        return python


def ensure_dspark(cache: Path = DEFAULT_CACHE) -> Path:
    """The interpreter that mlx-dspark and mlx-vlm run in, with the same mlx as ours."""
    return Environment("dspark", (*own_versions(), *NEEDED), PEERS).ensure(cache)


def ensure_mtplx(cache: Path = DEFAULT_CACHE) -> Path:
    """The interpreter that mtplx runs in."""
    return Environment("mtplx", MTPLX_NEEDED, MTPLX).ensure(cache)


def own_versions() -> list[str]:
    """Pin the shared packages to what runs here, so that both sides use the same mlx."""
    pins = []
    for name in SHARED:
        try:
            pins.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            continue
    return pins


def pip_install(python: Path, arguments: Sequence[str]) -> None:
    """Run pip in the peer's environment; a failure ends the benchmark with one line."""
    command = [str(python), "-m", "pip", "install", "--quiet", *arguments]
    if subprocess.run(command, check=False).returncode:  # noqa: S603
        raise SystemExit(f"pip could not install {' '.join(arguments)}; see its message above")


class Dspark:
    """A running peer that has loaded ``folders`` and answers one request at a time.

    mlx-dspark, or another program of its environment that talks alike.
    """

    def __init__(self, python: Path, *folders: Path | str, worker: Path = WORKER) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            [python, worker, *folders], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.version: str = self._read()["version"]

    def ask(self, method: str, prompt: Sequence[int], max_tokens: int) -> dict[str, Any]:
        """Run ``lookup`` or ``greedy``: ``ids``, decode ``seconds``, target ``forwards``."""
        request = {"method": method, "prompt": list(prompt), "max_tokens": max_tokens}
        if self._process.stdin is None:
            raise RuntimeError("the peer's process has no standard input")
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._read()

    def close(self) -> None:
        """End the process by closing its input."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            code = self._process.wait()
            raise SystemExit(f"the peer's process ended with status {code}; see above")
        answer: dict[str, Any] = json.loads(line)
        return answer


if __name__ == "__main__":
    if platform.system() == "Windows":
        raise SystemExit("mlx has no Windows build; run this on macOS or Linux")
    print(ensure_dspark())
