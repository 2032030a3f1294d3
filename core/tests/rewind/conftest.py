"""What the tests of rewinding share: entries that are written to without a model."""

from __future__ import annotations

import mlx.core as mx

# Windows and steps are bit-identical on the CPU with the BLAS of the wheel, not on every GPU.
mx.set_default_device(mx.cpu)
