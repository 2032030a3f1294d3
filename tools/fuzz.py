"""Fuzzing: nothing that a user can write ends in a traceback or hangs.

::

    pip install -e '.[fuzz]'
    python tools/fuzz.py TARGET [--seconds N]
    python tools/fuzz.py TARGET --input FILE      # one input again

Atheris (libFuzzer) changes inputs so that they reach code which no input reached before.  Targets
are those of ``fuzz_targets.py``.  Inputs that bring out anything but an error of mlxfill's own are
printed, one of each kind, and left as ``found-...`` in the working folder; one that takes more than
ten seconds ends the run and is left as ``timeout-...``.  Exit code 0: nothing was found.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import atheris

if TYPE_CHECKING:
    from fuzz_targets import Target

MODULES = [
    "mlxfill",
    *(f"mlxfill_{name}" for name in ("constrain", "fill_echo", "fill_strict", "serve")),
    *(f"mlxfill_{name}" for name in ("spec_ngram", "spec_qwen_mtp", "spec_two_model")),
]
LONGEST = 4096
"""Bytes of an input."""
HANGS = 10
"""Seconds for one input."""


def main() -> None:
    """Run what the command line asks for."""
    with atheris.instrument_imports(include=MODULES):
        from fuzz_targets import TARGETS

        parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
        parser.add_argument("target", choices=TARGETS)
        parser.add_argument("--seconds", type=int, default=60)
        parser.add_argument("--input", type=Path, help="only this one")
        parser.add_argument("--corpus", type=Path, help="folder that keeps what reached new code")
        given = parser.parse_args()
        target, here = TARGETS[given.target], Path.cwd()
        read = given.input and given.input.read_bytes()  # targets work in a folder of their own
        for seed in target.seeds:  # each must be taken, and imports what is imported when used
            target.run(seed)
    if read is not None:
        target.run(read)
        return
    corpus = here / (given.corpus or tempfile.mkdtemp(prefix="corpus-"))
    corpus.mkdir(exist_ok=True, parents=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = Path(tempfile.mkdtemp(prefix="words-")) / "words"
    words.write_text("".join(f"{json.dumps(word)}\n" for word in target.words if word), "utf-8")
    bounds = f"-timeout={HANGS}", f"-max_len={LONGEST}", "-rss_limit_mb=4096"
    output = f"-artifact_prefix={here}/", f"-dict={words}"
    hunt = Hunt(target, here, time.monotonic() + given.seconds)
    arguments = [sys.argv[0], *bounds, *output, str(corpus)]
    if target.mutator is None:
        atheris.Setup(arguments, hunt.one)
    else:
        atheris.Setup(arguments, hunt.one, custom_mutator=target.mutator(target.words))
    atheris.Fuzz()


@dataclass
class Hunt:
    """Runs a target until its time is over and goes on after what it finds."""

    target: Target
    folder: Path
    until: float
    found: set[str] = field(default_factory=set)

    def one(self, data: bytes) -> None:
        """One input."""
        if time.monotonic() > self.until:
            sys.stdout.flush()
            os._exit(bool(self.found))  # libFuzzer would end with 0, whatever was found
        # Where libFuzzer's alarm does not come through, this says at least where it hangs.
        faulthandler.dump_traceback_later(2 * HANGS, exit=True)
        try:
            self.target.run(data)
        except Exception as error:  # noqa: BLE001 - what the hunt is for
            self.keep(data, error)

    def keep(self, data: bytes, error: Exception) -> None:
        """Leave the first input of each kind: by where it was raised, at the lines of mlxfill."""
        where = [f"{f.filename}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)]
        cause = error.__cause__ or error
        key = f"{type(cause).__name__} {where[-1]} {str(error)[:40]}"
        if key in self.found:
            return
        self.found.add(key)
        file = self.folder / f"found-{sha256(data).hexdigest()[:12]}"
        file.write_bytes(data)
        traceback.print_exception(error)
        print(f"{file}: {data!r}", file=sys.stderr)  # noqa: T201 - a report


if __name__ == "__main__":
    main()
