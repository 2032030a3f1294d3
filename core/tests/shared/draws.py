"""What tests of sampling look at: settings of every kind, ids, mlx's global generator."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"temperature": 1.2, "top_k": 5},
    {"temperature": 0.9, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.15},
    {"temperature": 1.1, "top_k": 7, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.1},
    {"temperature": 0.8, "xtc_probability": 0.3, "xtc_special_tokens": (1,), "top_p": 0.95},
]
each_setting = pytest.mark.parametrize("settings", SETTINGS, ids="-".join)


def ids(array: mx.array) -> list[int]:
    """Those of an array ``[n]``."""
    found: Any = array.tolist()
    return list(found)


def generator() -> list[int]:
    """State of mlx's global generator."""
    state: Any = mx.random.state
    return ids(state[0])
