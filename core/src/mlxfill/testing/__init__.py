"""For authors of plugins: tiny models of every cache kind, and plugins that are right or wrong.

Every source and drafter must leave the text as it is, so this is the test to write first::

    from mlxfill.testing import Guest, plain, plugged, tiny_model

    def test_output_is_what_plain_decoding_writes():
        model, prompt = tiny_model("qwen3_5"), [5, 9, 5, 9, 5]
        options = {"temperature": 0.7, "seed": 1}
        expected = plain(model, prompt, 40, **options)
        result = plugged(model, Guest(sources=[MySource]), prompt, 40, **options)
        assert result.tokens == expected.tokens
        assert result.faults == []

``MySource`` is called with the request.  ``ScriptedSource`` and ``ScriptedDrafter`` are right as
often as a test wants: company for the plugin under test.
"""

from __future__ import annotations

from mlxfill.testing.caches import contents, differences
from mlxfill.testing.conformance import (
    Conformance,
    ConformanceError,
    ConformanceWarning,
    check_draft_provider,
    check_generation_method,
    check_proposal_source,
    check_rewinder,
)
from mlxfill.testing.drafters import ScriptedDrafter, ScriptedRows
from mlxfill.testing.folders import folder_tokenizer, tiny_folder
from mlxfill.testing.guest import Guest, engine_with, plain, plugged, reference_tokens
from mlxfill.testing.kinds import CACHE_KINDS, CacheKind
from mlxfill.testing.models import (
    ARCHITECTURES,
    ROUNDED,
    ROUNDING,
    VOCAB,
    perturbed,
    shared_model,
    tiny_model,
)
from mlxfill.testing.registered import registered_hooks
from mlxfill.testing.requests import tiny_request
from mlxfill.testing.script import Script
from mlxfill.testing.sources import Outcome, ScriptedSource
from mlxfill.testing.tokenizer import EOS, tiny_tokenizer

__all__ = [
    "ARCHITECTURES",
    "CACHE_KINDS",
    "EOS",
    "ROUNDED",
    "ROUNDING",
    "VOCAB",
    "CacheKind",
    "Conformance",
    "ConformanceError",
    "ConformanceWarning",
    "Guest",
    "Outcome",
    "Script",
    "ScriptedDrafter",
    "ScriptedRows",
    "ScriptedSource",
    "check_draft_provider",
    "check_generation_method",
    "check_proposal_source",
    "check_rewinder",
    "contents",
    "differences",
    "engine_with",
    "folder_tokenizer",
    "perturbed",
    "plain",
    "plugged",
    "reference_tokens",
    "registered_hooks",
    "shared_model",
    "tiny_folder",
    "tiny_model",
    "tiny_request",
    "tiny_tokenizer",
]
