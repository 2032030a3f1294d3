"""Structured output for mlxfill: replies that a JSON schema, a regex or a grammar describes."""

from mlxfill_constrain.settings import ConstrainSettings
from mlxfill_constrain.vocabulary import Vocabulary

__all__ = ["ConstrainSettings", "Vocabulary"]
