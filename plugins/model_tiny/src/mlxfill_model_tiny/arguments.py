"""Checks of command-line arguments."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A whole number of at least 1, for ``argparse``."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)
