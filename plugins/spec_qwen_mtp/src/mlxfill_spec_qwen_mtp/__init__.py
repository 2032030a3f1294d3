"""The multi-token-prediction head of Qwen3.5-family models drafts for mlxfill."""

from mlxfill_spec_qwen_mtp.settings import MtpSettings

__all__ = ["MtpSettings"]
