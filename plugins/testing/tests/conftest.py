"""One device for all tests of the checks, and a place to write new plugins into."""

from __future__ import annotations

import mlx.core as mx

from mlxfill_testing.workplaces import site, workplace

__all__ = ["site", "workplace"]

# Windows and steps are bit-identical on the CPU with the BLAS of the wheel, not on every GPU.
mx.set_default_device(mx.cpu)
