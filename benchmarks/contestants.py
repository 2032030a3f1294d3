"""Opens the contestants that a setting needs, each once, and closes all of them at the end."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import prompts
import real_model
from arms import DsparkArm, MlxfillArm, MlxLmArm
from gauges import tiny_folder
from peers import Dspark, ensure_dspark

if TYPE_CHECKING:
    from pathlib import Path

    from arms import Arm
    from duels import Setting


class Contestants:
    """A context manager that hands out arms by model and name."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Arm] = {}
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def arm(self, model: str, name: str) -> Arm:
        """Find or open the contestant ``name`` on ``model``."""
        if (model, name) not in self._open:
            arm = open_arm(name, folder_of(model))
            self._closing.callback(arm.close)
            self._open[model, name] = arm
        return self._open[model, name]


def folder_of(model: str) -> Path:
    """Find or make the folder of ``tiny`` or of SmolLM2 in ``fp32`` or ``bf16``."""
    return tiny_folder() if model == "tiny" else real_model.ensure(model)


def open_arm(name: str, folder: Path) -> Arm:
    """Open a contestant by the name that the rows use: ``mlxfill + PLUGIN`` and so on."""
    product, *plugins = name.split(" + ")
    if product == "mlxfill":
        return MlxfillArm(folder, plugins)
    if product == "mlx-lm":
        return MlxLmArm(folder)
    return DsparkArm(Dspark(ensure_dspark(), folder), name.rsplit(maxsplit=1)[-1])


def prompt_ids(setting: Setting) -> list[int]:
    """Put the setting's question through the model's chat template."""
    from mlx_lm.tokenizer_utils import load

    question = getattr(prompts, setting.prompt.upper())
    tokenizer = load(folder_of(setting.model))
    chat = [{"role": "user", "content": question}]
    return list(tokenizer.apply_chat_template(chat, add_generation_prompt=True))
