"""Structured output for mlxfill: replies that a JSON schema, a regex or a grammar describes."""

from mlxfill_constrain.constraint import GrammarConstraint
from mlxfill_constrain.settings import ConstrainSettings
from mlxfill_constrain.vocabulary import Vocabulary
from mlxfill_constrain.walk import Walk

__all__ = ["ConstrainSettings", "GrammarConstraint", "Vocabulary", "Walk"]
