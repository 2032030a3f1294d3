"""Loading a model by name or path, with errors that say what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxfill.errors import BackendMissingError, ModelError, ModelNotFoundError, reason
from mlxfill.installing import extras, pip_install, to_install
from mlxfill.loading.adapters import check_adapter, put_into
from mlxfill.loading.configs import check_config, check_other_configs
from mlxfill.loading.files import INDEX, check_header, read_json
from mlxfill.loading.forked import check_process
from mlxfill.loading.formats import folder_format
from mlxfill.loading.vocabulary import check_tokenizer, check_vocabulary_file
from mlxfill.nearest import did_you_mean
from mlxfill.tool_calls.formats import with_calls

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    import mlx.core as mx
    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper

OF_PLUGINS = "model-"
"""What the extras of the core begin with that stand for models of plugins."""
LONGEST = 120
"""Characters of a name, and of what the hub says, that are shown."""


def require_backend() -> None:
    """Raise ``BackendMissingError`` when mlx cannot compute on this machine."""
    try:
        import mlx.core as mx

        mx.eval(mx.zeros(1))
    except ImportError as error:
        extra = "cpu" if sys.platform.startswith("linux") else "cuda13"
        message = (
            f"mlx has no backend here ({error}); install one: "
            f"{pip_install('mlxfill', extra=extra)} (or the extra cuda12 or cuda13 for NVIDIA GPUs)"
        )
        raise BackendMissingError(message) from error


def find_model(name: str, resolve: Callable[[str], Path | None]) -> Path:
    """The local folder of a model.  ``resolve`` asks the plugins; a hub id is fetched by mlx-lm.

    :raises ModelNotFoundError: there is none; names what was looked for.
    """
    if not name:
        message = "the name of the model is empty: give a folder, a plugin's model or a hub id"
        raise ModelNotFoundError(message)
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            return path
    except (OSError, RuntimeError) as error:  # too long, not to be looked into, nobody's home
        why = getattr(error, "strerror", None) or reason(error)
        raise ModelNotFoundError(f"no model folder {name[:LONGEST]!r}: {why}") from error
    resolved = resolve(name)
    if resolved is not None:
        return resolved
    if remedy := to_install(f"{OF_PLUGINS}{name}"):
        message = f"model {name!r} comes with a plugin: {remedy}, or name a model of your own"
        raise ModelNotFoundError(message)
    if path.exists():
        message = f"{name} is a file; a model is a folder with config.json and *.safetensors"
        raise ModelNotFoundError(message)
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        known = did_you_mean(name, _models_of_plugins())
        message = f"no model folder {name!r}{known or '; a model on the hub is OWNER/NAME'}"
        raise ModelNotFoundError(message)
    return _fetch(name)


def _models_of_plugins() -> list[str]:
    """The models that plugins of this project bring."""
    known = [extra for extra in extras() if extra.startswith(OF_PLUGINS)]
    return [extra.removeprefix(OF_PLUGINS) for extra in known]


def _fetch(repo: str) -> Path:
    """mlx-lm's own download: the local hub cache first, then the hub."""
    from mlx_lm.utils import _download

    try:
        return Path(_download(repo))
    except Exception as error:
        message = f"no folder {repo!r}, and the model hub did not give it: {_cause(error)}"
        raise ModelNotFoundError(message) from error


def _cause(error: Exception) -> str:
    """Of a download's pages of advice the line that says what happened."""
    lines = [line.strip().removeprefix("Got: ") for line in str(error).splitlines()]
    telling = [line for line in lines if line and "Request ID" not in line]
    return telling[0][:LONGEST] if telling else type(error).__name__


def load_model(
    path: Path, adapter_path: str | None = None, group: mx.distributed.Group | None = None
) -> tuple[Any, Any, dict[str, Any]]:
    """Model, mlx-lm's tokenizer wrapper and config of a folder, by mlx-lm's own loader.

    :param adapter_path: folder of a LoRA adapter, as mlx-lm trains them.
    :param group: ranks to split the model over; only this rank's slice is read into memory.
    :raises ModelError: a file is missing or broken, or a tensor does not fit; names it.
    """
    require_backend()
    check_process()
    check_files(path)
    if adapter_path is not None:
        check_adapter(adapter_path)
    from mlx_lm import load

    shared = group is not None and group.size() > 1
    try:
        loaded: Any = load(str(path), lazy=shared, return_config=True)
    except (Exception, SystemExit) as error:  # one architecture ends the process without a library
        raise ModelError(f"{path} cannot be loaded{_why(path, error)}") from error
    model, tokenizer, config = loaded
    if adapter_path is not None:
        put_into(model, adapter_path)
    # A prompt beyond the context gets an error of ours: transformers' warning counts as given.
    given = getattr(tokenizer, "deprecation_warnings", None)
    if isinstance(given, dict):
        given["sequence-length-is-longer-than-the-specified-maximum"] = True
    check_tokenizer(path, tokenizer)
    with_calls(tokenizer)
    if group is not None and shared:
        _split(model, group, path)
    return model, tokenizer, dict(config)


def load_tokenizer(path: str | os.PathLike[str]) -> TokenizerWrapper:
    """The tokenizer of a model's folder, in mlx-lm's wrapper, as ``mlxfill.load`` uses it."""
    from mlx_lm.tokenizer_utils import load

    return with_calls(load(Path(path)))


def _why(path: Path, error: BaseException) -> str:
    """What mlx-lm's loader says, and what the folder is where that explains it."""
    told = isinstance(error, ValueError | OSError | RuntimeError)
    said = reason(error) if told else f"{type(error).__name__}: {reason(error)}"
    found = folder_format(path)
    return f": {said}" if found.is_model else f": it is {found.name} ({said})"


def settle_randomness() -> None:
    """Compute mlx's global random state now.

    Each fresh weight draws from it, although a loaded one takes its place, and each draw adds to a
    chain that is kept until somebody computes it: 84 kB for each tiny model that is ever loaded.
    """
    import mlx.core as mx

    mx.eval(mx.random.state)


def _split(model: nn.Module, group: mx.distributed.Group, path: Path) -> None:
    """Leave this rank's slice of every sharded layer in the model (mlx-lm's ``shard``)."""
    import mlx.core as mx

    ranks = group.size()
    if not hasattr(model, "shard"):
        kind = type(model).__module__.rpartition(".")[2]
        refusal = ModelError(
            f"mlx-lm cannot split a {kind} model over {ranks} ranks: run {path} in one process"
        )
        refusal.on_every_rank = True
        raise refusal
    try:
        model.shard(group)
        mx.eval(model.parameters())
        mx.eval(model(mx.zeros((1, 1), mx.int32)))  # heads cut in two only show when it runs
    except Exception as error:
        failure = ModelError(
            f"{path} cannot be split over {ranks} ranks ({reason(error).rstrip('.')}): take a"
            " number that divides its attention heads and key-value heads"
        )
        failure.on_every_rank = isinstance(error, ValueError)  # shapes, not one machine's memory
        raise failure from error


def check_files(path: Path) -> None:
    """Raise for what mlx-lm would only trip over: config, index, shards, tokenizer."""
    config = path / "config.json"
    if not config.is_file():
        found = folder_format(path)
        what = "is it a model folder?" if found.key == "unknown" else f"it is {found.name}"
        message = f"{path} has no config.json: {what}"
        raise ModelNotFoundError(message)
    check_config(config)
    check_other_configs(path)
    index = path / INDEX
    if index.is_file():
        missing = sorted(s for s in _shards(index) if not (path / s).is_file())
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            message = f"{path} lacks the shard {missing[0]}{more} that {INDEX} lists"
            raise ModelNotFoundError(message)
    weights = sorted(path.glob("model*.safetensors"))
    if not weights:
        message = f"{path} has no model*.safetensors"
        raise ModelNotFoundError(message)
    for file in weights:
        check_header(file)
    check_vocabulary_file(path)


def _shards(index: Path) -> set[str]:
    """The files that an index lists."""
    parsed = read_json(index)
    listed = parsed.get("weight_map", {}) if isinstance(parsed, dict) else None
    if not isinstance(listed, dict) or not all(isinstance(s, str) for s in listed.values()):
        raise ModelError(f"{index} has no weight_map of tensors and files")
    return set(listed.values())


def context_limit(config: dict[str, Any]) -> int | None:
    """Longest sequence that the model was made for, in tokens, if its config says so."""
    for part in (config, config.get("text_config")):
        for key in ("max_position_embeddings", "n_positions", "model_max_length"):
            value = part.get(key) if isinstance(part, dict) else None
            if isinstance(value, int) and value > 0:
                return value
    return None
