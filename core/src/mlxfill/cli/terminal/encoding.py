"""Text in and out, whatever encoding the system believes in."""

from __future__ import annotations

import codecs
import json
import os
import sys
from io import TextIOWrapper

ESCAPED = "mlxfill.escaped"
"""What a stream does with characters that it has no bytes for: as JSON writes them, so that JSON
stays JSON."""
BYTES = "surrogateescape"
"""How Python keeps bytes that it cannot read."""


def speak_utf8() -> None:
    """Let the standard streams take every text.

    Where Python has taken the system for one that knows ASCII only (locale C), they speak UTF-8, as
    it does by itself from 3.15 on.  Where the user wants ASCII (``PYTHONIOENCODING``), what else
    there is to say is escaped.
    """
    codecs.register_error(ESCAPED, _escaped)
    wanted = os.environ.get("PYTHONIOENCODING")
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if not isinstance(stream, TextIOWrapper):
            continue
        ascii_only = codecs.lookup(stream.encoding).name == "ascii"
        if ascii_only and not wanted:
            stream.reconfigure(encoding="utf-8")
        if stream is not sys.stdin and stream.errors in {"strict", BYTES}:
            stream.reconfigure(errors=ESCAPED)


def as_text(argument: str) -> str:
    """What an argument says, where Python has kept its UTF-8 as bytes that are no ASCII."""
    try:
        return argument.encode("utf-8", BYTES).decode()
    except UnicodeError:  # no UTF-8 either: whoever checks it says so
        return argument


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
