"""A second, smaller mlx-lm model drafts for mlxfill."""

from mlxfill_spec_two_model.settings import TwoModelSettings

__all__ = ["TwoModelSettings"]
