"""Whether other programs make measured times unreliable."""

from __future__ import annotations

import os

ALWAYS = 0.5
"""Threads of what runs on any machine."""


def other_programs() -> str:
    """``load 4.0 on 2 cores`` when more threads ran than this process may use; "" when not.

    The load is that of the last minute.
    """
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"load {load:.1f} on {cores} cores" if load > cores + ALWAYS else ""
