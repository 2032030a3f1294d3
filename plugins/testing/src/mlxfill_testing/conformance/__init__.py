"""The tests that every plugin should pass, for anyone's plugin to run on itself.

Each check takes what makes the plugin's object and raises ``ConformanceError`` with one line in
plain words and the shortest example that was found.
"""

from mlxfill_testing.conformance.breach import ConformanceError
from mlxfill_testing.conformance.drafter import check_draft_provider
from mlxfill_testing.conformance.method import check_generation_method
from mlxfill_testing.conformance.report import Conformance, ConformanceWarning
from mlxfill_testing.conformance.rewinder import check_rewinder
from mlxfill_testing.conformance.source import check_proposal_source

__all__ = [
    "Conformance",
    "ConformanceError",
    "ConformanceWarning",
    "check_draft_provider",
    "check_generation_method",
    "check_proposal_source",
    "check_rewinder",
]
