"""For authors of plugins: checks, tiny models of every cache kind, plugins right or wrong at will.

Every source and drafter must leave the text as it is, so this is the test to write first::

    from mlxfill_testing import Guest, plain, plugged, tiny_model

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

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxfill_testing.caches import contents, differences
    from mlxfill_testing.conformance import (
        Conformance,
        ConformanceError,
        ConformanceWarning,
        check_draft_provider,
        check_generation_method,
        check_proposal_source,
        check_rewinder,
    )
    from mlxfill_testing.drafters import ScriptedDrafter, ScriptedRows
    from mlxfill_testing.folders import tiny_folder
    from mlxfill_testing.guest import Guest, engine_with, plain, plugged, reference_tokens
    from mlxfill_testing.kinds import CACHE_KINDS, CacheKind
    from mlxfill_testing.models import (
        ARCHITECTURES,
        ROUNDED,
        ROUNDING,
        VOCAB,
        perturbed,
        shared_model,
        tiny_model,
    )
    from mlxfill_testing.registered import registered_hooks
    from mlxfill_testing.requests import tiny_request
    from mlxfill_testing.script import Script
    from mlxfill_testing.sources import Outcome, ScriptedSource
    from mlxfill_testing.tokenizer import EOS, tiny_tokenizer

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

_HOMES = {
    "ARCHITECTURES": "mlxfill_testing.models",
    "CACHE_KINDS": "mlxfill_testing.kinds",
    "CacheKind": "mlxfill_testing.kinds",
    "Conformance": "mlxfill_testing.conformance",
    "ConformanceError": "mlxfill_testing.conformance",
    "ConformanceWarning": "mlxfill_testing.conformance",
    "EOS": "mlxfill_testing.tokenizer",
    "Guest": "mlxfill_testing.guest",
    "Outcome": "mlxfill_testing.sources",
    "ROUNDED": "mlxfill_testing.models",
    "ROUNDING": "mlxfill_testing.models",
    "Script": "mlxfill_testing.script",
    "ScriptedDrafter": "mlxfill_testing.drafters",
    "ScriptedRows": "mlxfill_testing.drafters",
    "ScriptedSource": "mlxfill_testing.sources",
    "VOCAB": "mlxfill_testing.models",
    "check_draft_provider": "mlxfill_testing.conformance",
    "check_generation_method": "mlxfill_testing.conformance",
    "check_proposal_source": "mlxfill_testing.conformance",
    "check_rewinder": "mlxfill_testing.conformance",
    "contents": "mlxfill_testing.caches",
    "differences": "mlxfill_testing.caches",
    "engine_with": "mlxfill_testing.guest",
    "perturbed": "mlxfill_testing.models",
    "plain": "mlxfill_testing.guest",
    "plugged": "mlxfill_testing.guest",
    "reference_tokens": "mlxfill_testing.guest",
    "registered_hooks": "mlxfill_testing.registered",
    "shared_model": "mlxfill_testing.models",
    "tiny_folder": "mlxfill_testing.folders",
    "tiny_model": "mlxfill_testing.models",
    "tiny_request": "mlxfill_testing.requests",
    "tiny_tokenizer": "mlxfill_testing.tokenizer",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562): every run of pytest imports this package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
