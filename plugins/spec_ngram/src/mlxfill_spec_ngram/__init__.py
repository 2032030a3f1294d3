"""Prompt lookup for mlxfill: what followed before is proposed again."""

from mlxfill_spec_ngram.guesser import Guesser, RuleGuesser
from mlxfill_spec_ngram.lookup import make_lookup
from mlxfill_spec_ngram.rows import NgramProvider, NgramRows
from mlxfill_spec_ngram.settings import NgramSettings
from mlxfill_spec_ngram.source import NgramSource

__all__ = [
    "Guesser",
    "NgramProvider",
    "NgramRows",
    "NgramSettings",
    "NgramSource",
    "RuleGuesser",
    "make_lookup",
]
