"""mlxfill makes a language model on MLX answer sooner without changing what it says.

::

    import mlxfill

    with mlxfill.load("tiny") as engine:
        print(engine.generate("Which files changed?").text)

The names below are all there is for programs and plugins, with ``mlxfill.rules`` for settings.
Each is imported when it is first used: ``import mlxfill`` itself needs neither mlx nor
transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxfill.audit.audit import Audit, AuditedRun
    from mlxfill.batch.scheduler import RowScheduler
    from mlxfill.chat.prompt import Prompt
    from mlxfill.checkpoint.checkpoint import Checkpoint
    from mlxfill.cli.groups import grouped
    from mlxfill.cli.terminal.origins import painted
    from mlxfill.cli.terminal.outputs import check_output
    from mlxfill.cli.terminal.tables import fit_table, standard_output
    from mlxfill.config import Config, load_config
    from mlxfill.contracts import (
        MLXFILL_API,
        CacheRewinder,
        Constraint,
        DraftCheckpoint,
        DraftKind,
        DraftProvider,
        DraftRows,
        DraftSampling,
        Event,
        Fault,
        GenerationMethod,
        LayerReplay,
        Limits,
        Policy,
        Proposal,
        ProposalSource,
        Request,
        Schema,
        TargetView,
        TokenView,
    )
    from mlxfill.decode.prompt_scores import PromptScores
    from mlxfill.engine import (
        Engine,
        Piece,
        PromptCache,
        Result,
        Run,
        Stats,
        load,
    )
    from mlxfill.engine.compat import stream_generate
    from mlxfill.errors import (
        BackendMissingError,
        CacheMismatchError,
        CheckpointError,
        ConfigError,
        DrafterError,
        InputError,
        MlxfillError,
        ModelError,
        ModelNotFoundError,
        PluginError,
        TemplateError,
    )
    from mlxfill.hookspecs import hookimpl
    from mlxfill.loading.baked import BakedHead, baked_head
    from mlxfill.loading.formats import FolderFormat, folder_format
    from mlxfill.loading.model import load_tokenizer
    from mlxfill.loading.tensors import (
        files_fingerprint,
        inferred_quantization,
        load_weights,
        read_tensors,
    )
    from mlxfill.model.compiled import CompiledForward
    from mlxfill.plugins import PluginManager, installed_plugin
    from mlxfill.policy.cost import CostCurve
    from mlxfill.rewind.mark import CacheMark
    from mlxfill.rewind.window import CacheWindow
    from mlxfill.rows.batched import BatchedCache
    from mlxfill.sampling import Chooser, Sampling
    from mlxfill.tool_calls.messages import for_template
    from mlxfill.whole import replacing

__all__ = [
    "MLXFILL_API",
    "Audit",
    "AuditedRun",
    "BackendMissingError",
    "BakedHead",
    "BatchedCache",
    "CacheMark",
    "CacheMismatchError",
    "CacheRewinder",
    "CacheWindow",
    "Checkpoint",
    "CheckpointError",
    "Chooser",
    "CompiledForward",
    "Config",
    "ConfigError",
    "Constraint",
    "CostCurve",
    "DraftCheckpoint",
    "DraftKind",
    "DraftProvider",
    "DraftRows",
    "DraftSampling",
    "DrafterError",
    "Engine",
    "Event",
    "Fault",
    "FolderFormat",
    "GenerationMethod",
    "InputError",
    "LayerReplay",
    "Limits",
    "MlxfillError",
    "ModelError",
    "ModelNotFoundError",
    "Piece",
    "PluginError",
    "PluginManager",
    "Policy",
    "Prompt",
    "PromptCache",
    "PromptScores",
    "Proposal",
    "ProposalSource",
    "Request",
    "Result",
    "RowScheduler",
    "Run",
    "Sampling",
    "Schema",
    "Stats",
    "TargetView",
    "TemplateError",
    "TokenView",
    "baked_head",
    "check_output",
    "files_fingerprint",
    "fit_table",
    "folder_format",
    "for_template",
    "grouped",
    "hookimpl",
    "inferred_quantization",
    "installed_plugin",
    "load",
    "load_config",
    "load_tokenizer",
    "load_weights",
    "painted",
    "read_tensors",
    "replacing",
    "standard_output",
    "stream_generate",
]

_HOMES = {
    "Audit": "mlxfill.audit.audit",
    "AuditedRun": "mlxfill.audit.audit",
    "BakedHead": "mlxfill.loading.baked",
    "BatchedCache": "mlxfill.rows.batched",
    "CacheMark": "mlxfill.rewind.mark",
    "CacheWindow": "mlxfill.rewind.window",
    "Checkpoint": "mlxfill.checkpoint.checkpoint",
    "Chooser": "mlxfill.sampling",
    "CompiledForward": "mlxfill.model.compiled",
    "Config": "mlxfill.config",
    "CostCurve": "mlxfill.policy.cost",
    "Engine": "mlxfill.engine",
    "FolderFormat": "mlxfill.loading.formats",
    "Piece": "mlxfill.engine",
    "PluginManager": "mlxfill.plugins",
    "Prompt": "mlxfill.chat.prompt",
    "PromptCache": "mlxfill.engine",
    "PromptScores": "mlxfill.decode.prompt_scores",
    "Result": "mlxfill.engine",
    "RowScheduler": "mlxfill.batch.scheduler",
    "Run": "mlxfill.engine",
    "Sampling": "mlxfill.sampling",
    "Stats": "mlxfill.engine",
    "baked_head": "mlxfill.loading.baked",
    "check_output": "mlxfill.cli.terminal.outputs",
    "files_fingerprint": "mlxfill.loading.tensors",
    "fit_table": "mlxfill.cli.terminal.tables",
    "folder_format": "mlxfill.loading.formats",
    "for_template": "mlxfill.tool_calls.messages",
    "grouped": "mlxfill.cli.groups",
    "hookimpl": "mlxfill.hookspecs",
    "inferred_quantization": "mlxfill.loading.tensors",
    "installed_plugin": "mlxfill.plugins",
    "load": "mlxfill.engine",
    "load_config": "mlxfill.config",
    "load_tokenizer": "mlxfill.loading.model",
    "load_weights": "mlxfill.loading.tensors",
    "painted": "mlxfill.cli.terminal.origins",
    "read_tensors": "mlxfill.loading.tensors",
    "replacing": "mlxfill.whole",
    "standard_output": "mlxfill.cli.terminal.tables",
    "stream_generate": "mlxfill.engine.compat",
}
"""Where the names are that are neither errors nor contracts."""


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562).

    :raises BackendMissingError: it needs mlx, which has no backend here.
    """
    if name == "__version__":
        from importlib.metadata import version

        return version("mlxfill")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    others = "mlxfill.errors" if name.endswith("Error") else "mlxfill.contracts"
    try:
        value: object = getattr(import_module(_HOMES.get(name, others)), name)
    except ImportError:
        from mlxfill.loading.model import require_backend

        require_backend()
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
