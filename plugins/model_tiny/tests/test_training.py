from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from attrs import evolve
from mlx_lm import generate, load

import mlxfill
from mlxfill_model_tiny.plugin import mlxfill_resolve_model
from mlxfill_model_tiny.train.__main__ import main
from mlxfill_model_tiny.train.dflash import train_dflash
from mlxfill_model_tiny.train.language_model import train_draft, train_target
from mlxfill_model_tiny.train.mtp import train_mtp
from mlxfill_model_tiny.train.pack import pack
from mlxfill_model_tiny.train.settings import Settings
from mlxfill_model_tiny.train.tokenizer import train_tokenizer

SHIPPED = {
    "target": "tiny",
    "draft": "tiny-draft",
    "mtp": "tiny-mtp",
    "dflash": "tiny-dflash",
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    out = tmp_path_factory.mktemp("toy")
    train_tokenizer(out / "tokenizer", documents=3000, seed=0)
    # Compiling the training steps for a CPU takes much longer than these few steps themselves.
    mx.disable_compile()
    yield Settings(out, steps=2, copy_steps=1, documents=8, batch=2)
    mx.enable_compile()


@pytest.fixture(scope="module")
def losses(toy: Settings) -> dict[str, list[float]]:
    return {
        "target": train_target(toy),
        "draft": train_draft(toy),
        "mtp": train_mtp(toy),
        "dflash": train_dflash(toy),
    }


def arrays_in(folder: Path) -> dict[str, mx.array]:
    arrays = mx.load(str(folder / "model.safetensors"))
    assert isinstance(arrays, dict)
    return arrays


def config_in(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


def test_every_step_of_every_part_has_a_finite_loss(losses: dict[str, list[float]]) -> None:
    steps = {"target": 3, "draft": 3, "mtp": 2, "dflash": 2}
    assert {part: len(some) for part, some in losses.items()} == steps
    assert all(math.isfinite(loss) for some in losses.values() for loss in some)


def test_the_seed_decides_the_losses(toy: Settings, losses: dict[str, list[float]]) -> None:
    assert train_draft(toy) == losses["draft"]
    assert train_draft(evolve(toy, seed=1)) != losses["draft"]


@pytest.mark.usefixtures("losses")
@pytest.mark.parametrize("part", ["target", "draft"])
def test_mlx_lm_runs_what_was_trained(toy: Settings, part: str) -> None:
    model, tokenizer, *_ = load(str(toy.out / part))
    assert tokenizer.has_tool_calling
    assert isinstance(generate(model, tokenizer, [1, 2, 3], max_tokens=2), str)


@pytest.mark.usefixtures("losses")
@pytest.mark.parametrize("part", SHIPPED)
def test_training_makes_what_is_shipped_but_for_the_weights(toy: Settings, part: str) -> None:
    shipped, trained = mlxfill_resolve_model(SHIPPED[part]), toy.out / part
    assert shipped is not None
    names = {file.name for file in shipped.iterdir()}
    assert names == {file.name for file in trained.iterdir()}
    for name in names - {"model.safetensors"}:
        assert (trained / name).read_text() == (shipped / name).read_text(), name
    assert {name: array.shape for name, array in arrays_in(trained).items()} == {
        name: array.shape for name, array in arrays_in(shipped).items()
    }


@pytest.mark.usefixtures("losses")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_pack_keeps_every_file_and_casts_the_weights(toy: Settings, precision: Any) -> None:
    sizes = pack(toy.out, precision)
    assert {path for path in sizes if path.endswith("config.json")} >= {
        f"{part}/config.json" for part in SHIPPED
    }
    for part in SHIPPED:
        packed = toy.out / "models" / part
        assert config_in(packed) == {**config_in(toy.out / part), "dtype": precision}
        for name, array in arrays_in(packed).items():
            expected = "float32" if name.endswith("A_log") else precision
            assert str(array.dtype) == f"mlx.core.{expected}", name


def test_pack_refuses_what_is_too_large_to_ship(tmp_path: Path) -> None:
    for part in SHIPPED:
        (tmp_path / part).mkdir()
        (tmp_path / part / "config.json").write_text("{}")
        weights = {"weight": mx.zeros((1_000_000,))}
        mx.save_safetensors(str(tmp_path / part / "model.safetensors"), weights)
    with pytest.raises(mlxfill.InputError, match="the limits are 16000000 and 5000000"):
        pack(tmp_path, "float32")
    assert sum(pack(tmp_path, "bfloat16").values()) < 16_000_000


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "PART"),
        (["poem", "--out", "OUT"], "'poem'"),
        (["target"], "--out"),
        (["target", "--out", "OUT"], "train the part `tokenizer` first"),
        (["pack", "--out", "OUT"], "train the part `target` first"),
        (["pack", "--out", "OUT", "--precision", "int4"], "'int4'"),
        (["draft", "--out", "OUT", "--steps", "0"], "'0' is no whole number of at least 1"),
        (["draft", "--out", "OUT", "--steps", "many"], "'many' is no whole number of at least 1"),
        (["mtp", "--out", "TOY", "--documents", "3"], "--documents 3 leaves"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(
    arguments: list[str],
    named: str,
    toy: Settings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folders = {"OUT": str(tmp_path), "TOY": str(toy.out)}
    with pytest.raises(SystemExit) as ended:
        main([folders.get(argument, argument) for argument in arguments])
    assert ended.value.code == 2
    last = capsys.readouterr().err.rstrip("\n").rpartition("\n")[2]
    assert "error: " in last
    assert named in last


def test_the_command_line_trains_a_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["tokenizer", "--out", str(tmp_path), "--documents", "20"])
    assert "ids" in capsys.readouterr().out
    assert (tmp_path / "tokenizer" / "tokenizer.json").is_file()
