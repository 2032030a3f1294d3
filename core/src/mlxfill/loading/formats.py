"""What lies in a folder, told by its config and the names of its tensors; no weights are read.

``FORMATS`` describes what is published to draft with, and what is taken for it by mistake.  A
plugin asks ``folder_format`` before it claims a folder; what nobody claims is named by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill.errors import ModelError
from mlxfill.loading.baked import FILES
from mlxfill.loading.files import read_json, tensor_names

if TYPE_CHECKING:
    import os

    from mlxfill.loading.baked import BakedHead

CONFIG = "config.json"
MODEL, QWEN_MTP, MTP = "model", "qwen-mtp", "mtp"
"""The formats that are used somewhere, not only named."""
QWEN = ("qwen3_5", "qwen3_next")
"""How the ``model_type`` of a target begins whose head is of the format ``QWEN_MTP``."""


@frozen
class FolderFormat:
    """What a folder holds.

    ``name``: in words, with an article: "a DFlash block drafter"; ``key``: the same for programs.
    ``is_model``: a language model that mlx-lm can load alone, as target or as draft model.
    """

    key: str
    name: str

    @property
    def is_model(self) -> bool:
        """Whether it can stand alone."""
        return self.key == MODEL


@frozen
class _Format:
    """Any one of these tells it; several are parted by spaces.

    ``values``: patterns of ``model_type``, ``speculators_model_type`` and ``architectures``, in
    lower case; ``keys``: of the config; ``tensors``: patterns of names.
    """

    key: str
    name: str
    values: str = ""
    keys: str = ""
    tensors: str = ""


FORMATS = (
    _Format("dspark", "a DSpark drafter", "*dspark*", "dspark_config"),
    _Format("dflash", "a DFlash block drafter", "*dflash*", "dflash_config"),
    _Format("p-eagle", "a P-EAGLE draft head", "*peagle* p_eagle*"),
    _Format(
        *("eagle3", "an EAGLE-3 draft head", "*eagle3*"),
        "eagle_config eagle_aux_hidden_state_layer_ids",
        "d2t t2d midlayer.* model.midlayer.*",
    ),
    _Format("eagle", "an EAGLE draft head", "eagle eagle[12]* eaglemodel *eagle?*forcausallm"),
    _Format("eagle", "an EAGLE draft head", "*forcausallmeagle eaglespeculator*"),
    _Format(
        *("medusa", "a set of Medusa heads", "*medusa*"),
        *("medusa_num_heads medusa_num_layers", "medusa_head.*"),
    ),
    _Format("hydra", "a set of Hydra heads", "hydra*", "hydra_num_heads hydra_num_layers"),
    _Format("mlp-speculator", "an MLP speculator", "*mlp_speculator* *mlpspeculator*"),
    _Format("redrafter", "a recurrent drafter", "*recurrent_drafter* *redrafter*"),
    _Format("gemma4-assistant", "a Gemma 4 assistant drafter", "*_assistant gemma4*assistant*"),
    _Format(
        *(QWEN_MTP, "an MTP head of the Qwen3.5 family"),
        "qwen3_5_mtp qwen3_5_moe_mtp qwen3_next_mtp",
    ),
    _Format(MTP, "an MTP head", "mtp *_mtp *-mtp *mtpmodel *mtp *mtpdraftmodel *mtpforcausallm"),
    _Format(
        *("speculators", "a drafter in the format of speculators", ""),
        "speculators_model_type speculators_config",
    ),
    _Format("eagle", "an EAGLE draft head", tensors="fc.weight model.fc.weight"),
    _Format(
        *("encoder", "an encoder, which writes no text"),
        "*bert* *roberta* electra mpnet t5encoder* *forsequenceclassification *encodermodel"
        " *fortokenclassification *formaskedlm *forquestionanswering *forembedding* *rewardmodel*",
    ),
    _Format("seq2seq", "an encoder-decoder model", "t5 mt5 bart mbart pegasus marian whisper"),
    _Format(
        *("vision", "a vision tower"),
        "*vision_model *_vision siglip* clip clip_* clipmodel vit dinov2* *visionmodel"
        " *forimageclassification",
    ),
    _Format("audio", "an audio model", "wav2vec2* hubert* encodec* *_audio_encoder"),
)
"""In the order in which they are asked: what says more first."""
OTHERS_FILES = {
    "adapter_config.json": ("adapter", "an adapter, not a model of its own"),
    "*.gguf": ("gguf", "a model in GGUF, which mlx-lm does not read"),
    "pytorch_model*.bin": ("torch", "weights of PyTorch without *.safetensors"),
    "*.bin": ("torch", "weights of PyTorch without *.safetensors"),
    "*.pt": ("torch", "weights of PyTorch without *.safetensors"),
    "*.pth": ("torch", "weights of PyTorch without *.safetensors"),
    "*.onnx": ("onnx", "a model in ONNX, which mlx-lm does not read"),
}
"""Files that say what a folder is that has no weights of the kind that mlx reads."""
SENTENCES = ("modules.json", "config_sentence_transformers.json")
"""Files of an embedding model, whatever model it was made from."""
ENCODER_DECODER = "is_encoder_decoder"


def folder_format(folder: str | os.PathLike[str]) -> FolderFormat:
    """What lies in ``folder``, by its config and the names of its tensors.  Raises nothing."""
    path = Path(folder)
    if not path.is_dir():
        return FolderFormat("file" if path.exists() else "nothing", "no folder")
    if not any(path.iterdir()):
        return FolderFormat("empty", "an empty folder")
    config = _config(path)
    if config is None:
        return FolderFormat(*_without_config(path))
    for known in FORMATS:
        if _says(known, config) or (known.tensors and _match(known.tensors, _own_tensors(path))):
            return FolderFormat(known.key, known.name)
    return FolderFormat(*_model(path, config))


def head_format(head: BakedHead) -> str:
    """The format of a head that lies in a model's folder: that of its family."""
    family = (head.text_config.get("model_type"), head.config.get("model_type"))
    return QWEN_MTP if any(str(each).startswith(QWEN) for each in family) else MTP


def _own_tensors(path: Path) -> list[str]:
    """Names of the tensors in a folder, but for those of a head that lies beside a model."""
    named = tensor_names(path)
    heads = {file for file in named.values() if any(fnmatchcase(file, head) for head in FILES)}
    return [name for name, file in named.items() if file not in heads]


def _config(path: Path) -> Mapping[str, Any] | None:
    try:
        config = read_json(path / CONFIG)
    except ModelError:
        return None
    return config if isinstance(config, dict) else None


def _without_config(path: Path) -> tuple[str, str]:
    if (path / CONFIG).is_file():
        return "broken", f"a folder whose {CONFIG} cannot be read"
    return _by_files(path) or ("unknown", f"a folder without {CONFIG}")


def _by_files(path: Path) -> tuple[str, str] | None:
    for pattern, found in OTHERS_FILES.items():
        if any(path.glob(pattern)):
            return found
    return None


def _says(known: _Format, config: Mapping[str, Any]) -> bool:
    """Whether the config says so."""
    types = [config.get("model_type"), config.get("speculators_model_type")]
    values = [*types, *_listed(config.get("architectures"))]
    return any(key in config for key in known.keys.split()) or _match(known.values, values)


def _match(patterns: str, values: Iterable[object]) -> bool:
    texts = [value.lower() for value in values if isinstance(value, str)]
    return any(fnmatchcase(text, pattern) for text in texts for pattern in patterns.split())


def _listed(value: object) -> Iterator[object]:
    yield from value if isinstance(value, list) else [value]


def _model(path: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    kind = config.get("model_type")
    if not isinstance(kind, str):
        return _by_files(path) or ("unknown", f"a folder whose {CONFIG} names no model_type")
    if config.get(ENCODER_DECODER) is True:
        return "seq2seq", "an encoder-decoder model"
    if any((path / file).is_file() for file in SENTENCES):
        return "embedding", "an embedding model, which writes no text"
    if not any(path.glob("*.safetensors")):
        found = _by_files(path)
        if found is not None:
            return found
    if not _known_to_mlx_lm(config):
        return "foreign", f"a {kind} model, an architecture that mlx-lm does not have"
    return MODEL, "a language model"


def _known_to_mlx_lm(config: Mapping[str, Any]) -> bool:
    from mlx_lm.utils import _get_classes

    try:
        return bool(_get_classes(dict(config)))
    except (Exception, SystemExit):  # noqa: BLE001 - of a module that it imports by a name
        return False
