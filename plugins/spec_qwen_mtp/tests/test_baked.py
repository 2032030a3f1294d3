"""A head that lies in its release: found without a flag, whatever form its weights have."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mlxfill import DrafterError, Engine, Sampling
from mlxfill.model.target import Target
from mlxfill.sampling import Chooser
from mlxfill_spec_qwen_mtp import MtpSettings
from mlxfill_spec_qwen_mtp.config import HeadConfig
from mlxfill_spec_qwen_mtp.head import MtpHead, parameters
from mlxfill_spec_qwen_mtp.provider import load_provider
from mlxfill_spec_qwen_mtp.split import split
from mlxfill_testing import VOCAB, shared_model, tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

PROMPT = [7, 21, 3, 40, 55, 3, 12]
INDEX = "model.safetensors.index.json"
OTHERS = {"model.norm.weight": mx.ones(4)}
E4M3 = np.array([2.0 ** (e - 7) * (1 + m / 8) for e in range(1, 15) for m in range(8)])
"""The positive normal values of e4m3, in the order of their codes from 8 on."""

Weights = dict[str, mx.array]


def weights_of(text: Mapping[str, Any]) -> Weights:
    """Random weights at run-time scale: norms near 1."""
    mx.random.seed(3)
    noise = {
        name: mx.random.normal(weight.shape)
        for name, weight in parameters(MtpHead(HeadConfig(text, 3))).items()
    }
    return {name: 1 + 0.1 * each if "norm" in name else 0.2 * each for name, each in noise.items()}


def release(folder: Path, text: Mapping[str, Any], files: Mapping[str, Weights]) -> Path:
    """The folder of a target, with these files."""
    for name, weights in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        mx.save_safetensors(str(folder / name), weights)
    config = {"model_type": "qwen3_5", "text_config": text}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def indexed(folder: Path) -> Path:
    """The same with an index of all files beside the config."""
    names = {
        name: file.name for file in folder.glob("*.safetensors") for name in mx.load(str(file))
    }
    (folder / INDEX).write_text(json.dumps({"weight_map": names}), "utf-8")
    return folder


def under(prefix: str, weights: Weights) -> Weights:
    """As a release names them."""
    return {f"{prefix}{name}": weight for name, weight in weights.items()}


def halves(weights: Weights) -> dict[str, Weights]:
    """In two shards."""
    names = sorted(weights)
    return {
        "model-00001-of-00002.safetensors": OTHERS | {name: weights[name] for name in names[::2]},
        "model-00002-of-00002.safetensors": {name: weights[name] for name in names[1::2]},
    }


PLACES: dict[str, Callable[[Weights], dict[str, Weights]]] = {
    "mtp.*": lambda w: {"model.safetensors": OTHERS | under("mtp.", w)},
    "language_model.mtp.*": lambda w: {
        "model.safetensors": OTHERS | under("language_model.mtp.", w)
    },
    "model.language_model.mtp.*": lambda w: {
        "model.safetensors": OTHERS | under("model.language_model.mtp.", w)
    },
    "two shards": lambda w: halves(under("mtp.", w)),
    "mtp.safetensors": lambda w: {"model.safetensors": OTHERS, "mtp.safetensors": w},
    "mtp.safetensors, prefixed": lambda w: {
        "model.safetensors": OTHERS,
        "mtp.safetensors": under("mtp.", w),
    },
    "model-mtp.safetensors": lambda w: {
        "model.safetensors": OTHERS,
        "model-mtp.safetensors": under("mtp.", w),
    },
    "mtp/weights.safetensors": lambda w: {
        "model.safetensors": OTHERS,
        "mtp/weights.safetensors": w,
    },
    "mtp/ in two files": lambda w: {
        "model.safetensors": OTHERS,
        "mtp/a.safetensors": {name: w[name] for name in sorted(w)[::2]},
        "mtp/b.safetensors": {name: w[name] for name in sorted(w)[1::2]},
    },
}


@pytest.fixture
def target(tmp_path: Path) -> Any:
    with Target(shared_model("qwen3_5"), tiny_tokenizer(), tmp_path / "target") as target:
        yield target


def drafts(folder: Path, target: Any) -> list[int]:
    """What the head in a folder guesses on a fixed story."""
    provider = load_provider(folder, target, MtpSettings())
    rows = provider.open(target, [Chooser(Sampling(seed=1))], [None])
    states = mx.random.normal((1, len(PROMPT), 64), key=mx.random.key(2))
    rows.prefill(mx.array([PROMPT]), states)
    guessed: Any = rows.draft([33], 2, [len(PROMPT) + 1])
    return list(guessed.tolist()[0])


def published(folder: Path, text: Mapping[str, Any], weights: Weights) -> Path:
    """A split head, whose config stands beside it."""
    folder.mkdir(parents=True)
    config = {"model_type": "qwen3_5_mtp", "text_config": text}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    return folder


def engine_of(path: Path, **options: Any) -> Engine:
    """The tiny model as if it had been loaded from a folder."""
    return Engine(
        shared_model("qwen3_5"),
        tiny_tokenizer(),
        plugins=["spec-qwen-mtp"],
        config={"gate": {"enabled": False}},
        path=path,
        **options,
    )


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
def test_a_head_is_found_and_mounted_without_a_flag(
    tmp_path: Path, target: Any, text: dict[str, Any], place: str, *, index: bool
) -> None:
    weights = weights_of(text)
    folder = release(tmp_path / "model", text, PLACES[place](weights))
    if index:
        indexed(folder)
    ours = drafts(folder, target)
    assert ours == drafts(published(tmp_path / "head", text, weights), target)
    split(folder, tmp_path / "split")
    assert ours == drafts(tmp_path / "split", target)
    with engine_of(folder) as engine:
        (told,) = engine.faults
        spec = engine.generate(PROMPT, max_tokens=8, eos_token_ids=[]).stats.spec
    assert told.notice
    assert told.message.startswith(f"drafts with an MTP head of {len(weights)} tensors in ")
    assert spec["drafter"] == "spec-qwen-mtp"
    with engine_of(folder, num_draft_tokens=0) as engine:
        assert engine.faults == []


def test_a_head_that_cannot_be_mounted_is_told_with_the_reason(
    tmp_path: Path, text: dict[str, Any]
) -> None:
    weights = weights_of(text)
    del weights["fc.weight"]
    folder = release(tmp_path, text, PLACES["mtp.*"](weights))
    with engine_of(folder) as engine:
        (told,) = engine.faults
        assert len(engine.generate(PROMPT, max_tokens=4, eos_token_ids=[]).tokens) == 4
    assert told.message.startswith(f"{folder / 'model.safetensors'} lacks the tensor 'fc.weight'")
    assert told.message.endswith("; going on without")


@pytest.mark.parametrize("file", ["mtp.safetensors", "mtp/weights.safetensors"])
@pytest.mark.parametrize("kept", [0, 100, -1])
def test_a_file_of_a_head_that_was_cut_short_is_named(
    tmp_path: Path, text: dict[str, Any], file: str, kept: int
) -> None:
    folder = release(tmp_path, text, PLACES[file](weights_of(text)))
    (folder / file).write_bytes((folder / file).read_bytes()[:kept])
    with engine_of(folder) as engine:
        (told,) = engine.faults
    assert f"{folder / file} is no whole safetensors file" in told.message


@pytest.mark.parametrize("place", ["mtp.*", "mtp/weights.safetensors"])
def test_the_folder_can_be_named_as_the_drafter(
    tmp_path: Path, text: dict[str, Any], place: str
) -> None:
    folder = release(tmp_path, text, PLACES[place](weights_of(text)))
    with engine_of(folder, draft_kind="qwen-mtp") as engine:
        assert engine.generate(PROMPT, max_tokens=3).stats.spec["drafter"] == "spec-qwen-mtp"


# --- forms of weights ------------------------------------------------------------------------

FORMS = [(4, 64, "affine"), (8, 32, "affine"), (2, 32, "affine"), (6, 64, "affine")]
FORMS += [(4, 32, "mxfp4"), (8, 32, "mxfp8"), (4, 16, "nvfp4"), (3, 64, "affine")]


def quantized(text: Mapping[str, Any], bits: int, group_size: int, mode: str) -> Weights:
    """What ``mlx.nn.quantize`` makes of the head; one part of it in another way."""
    head = MtpHead(HeadConfig(text, 3))
    head.load_weights(list(weights_of(text).items()))

    def way(path: str, module: nn.Module) -> bool | dict[str, Any]:
        if not hasattr(module, "to_quantized"):
            return False
        return {"group_size": 32, "bits": 8} if path.endswith("o_proj") else True

    nn.quantize(head, group_size, bits, mode=mode, class_predicate=way)
    return parameters(head)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_quantization_is_told_by_shapes_alone(
    tmp_path: Path, target: Any, text: dict[str, Any], form: tuple[int, int, str]
) -> None:
    bits, group_size, mode = form
    text |= {"intermediate_size": 128}
    small = quantized(text, bits, group_size, mode)
    folder = release(tmp_path / "model", text, PLACES["mtp.*"](small))
    split(folder, tmp_path / "head")
    written = json.loads((tmp_path / "head" / "config.json").read_text("utf-8"))["quantization"]
    assert (written["group_size"], written["bits"], written["mode"]) == (group_size, bits, mode)
    provider = load_provider(folder, target, MtpSettings())
    assert provider.weights_bytes == sum(weight.nbytes for weight in small.values())
    assert drafts(folder, target) == drafts(tmp_path / "head", target)


def test_shapes_of_no_quantization_are_named(
    tmp_path: Path, target: Any, text: dict[str, Any]
) -> None:
    text |= {"intermediate_size": 128}
    small = quantized(text, 4, 64, "affine")
    small["fc.scales"] = small["fc.scales"][:, :1]
    small["fc.weight"] = small["fc.weight"][:, :5]
    folder = release(tmp_path, text, PLACES["mtp.*"](small))
    with pytest.raises(DrafterError, match=r"fc.weight and fc.scales, 5 and 1 elements a row"):
        load_provider(folder, target, MtpSettings())


def codes(weight: np.ndarray) -> np.ndarray:
    """Each value as the nearest code of e4m3, by a table."""
    nearest = np.abs(np.abs(weight)[..., None] - E4M3).argmin(-1) + 8
    return np.asarray(nearest + 128 * (weight < 0), np.uint8)


def write_fp8(file: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """A safetensors file in which 8-bit arrays are of e4m3, as releases have it."""
    header, data = {}, b""
    for name, array in tensors.items():
        content = array.tobytes()
        dtype = "F8_E4M3" if array.dtype == np.uint8 else "F32"
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        data += content
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize("scaled", ["blocks", "rows", "one"])
def test_fp8_weights_are_decoded_with_their_scales(
    tmp_path: Path, target: Any, text: dict[str, Any], scaled: str
) -> None:
    text |= {"intermediate_size": 160}  # no multiple of a block
    stored: dict[str, np.ndarray] = {}
    decoded: Weights = {}
    random = np.random.default_rng(5)
    for name, weight in weights_of(text).items():
        plain = np.array(weight, np.float32)
        if plain.ndim != 2 or name == "fc.weight":
            stored[f"mtp.{name}"], decoded[name] = plain, weight
            continue
        rows, columns = plain.shape
        grid = {
            "blocks": (-(-rows // 128), -(-columns // 128)),
            "rows": (rows, 1),
            "one": (1,),
        }[scaled]
        scale = random.uniform(0.5, 2, grid).astype(np.float32)
        spread = np.broadcast_to(scale, (rows, columns)) if scaled != "blocks" else scale
        if scaled == "blocks":
            spread = np.kron(scale, np.ones((128, 128), np.float32))[:rows, :columns]
        code = codes(plain / spread)
        value = np.where(code > 127, -1, 1) * E4M3[(code & 127).astype(int) - 8] * spread
        key = "weight_scale_inv" if scaled == "blocks" else "weight_scale"
        stored[f"mtp.{name}"] = code
        stored[f"mtp.{name.removesuffix('weight')}{key}"] = scale
        decoded[name] = mx.array(value.astype(np.float32)).astype(mx.bfloat16)
    folder = release(tmp_path / "model", text, {"model.safetensors": OTHERS})
    write_fp8(folder / "mtp.safetensors", stored)
    split(folder, tmp_path / "head")
    written: Any = mx.load(str(tmp_path / "head" / "model.safetensors"))
    assert written.keys() == decoded.keys()
    assert all(mx.array_equal(written[name], decoded[name]) for name in decoded)
    assert drafts(folder, target) == drafts(tmp_path / "head", target)


def test_experts_of_fp8_in_one_tensor_are_decoded(
    tmp_path: Path, target: Any, moe_text: dict[str, Any]
) -> None:
    weights = weights_of(moe_text)
    base = "layers.0.mlp"
    parts = [weights.pop(f"{base}.switch_mlp.{n}_proj.weight") for n in ("gate", "up", "down")]
    both, down = (np.array(each) for each in (mx.concatenate(parts[:2], axis=-2), parts[2]))
    stored = {f"mtp.{name}": np.array(weight, np.float32) for name, weight in weights.items()}
    for name, whole in (
        (f"{base}.experts.gate_up_proj", both),
        (f"{base}.experts.down_proj", down),
    ):
        stored[f"mtp.{name}"] = codes(whole)
        stored[f"mtp.{name}_scale_inv"] = np.full((4, 1, 1), 2, np.float32)
    folder = release(tmp_path / "model", moe_text, {"model.safetensors": OTHERS})
    write_fp8(folder / "mtp.safetensors", stored)
    split(folder, tmp_path / "head")
    written: Any = mx.load(str(tmp_path / "head" / "model.safetensors"))
    decoded = np.where(codes(down) > 127, -2, 2) * E4M3[(codes(down) & 127).astype(int) - 8]
    expected = mx.array(decoded.astype(np.float32)).astype(mx.bfloat16)
    assert mx.array_equal(written[f"{base}.switch_mlp.down_proj.weight"], expected)
    assert drafts(folder, target) == drafts(tmp_path / "head", target)


def test_eight_bit_integers_with_scales_are_refused(
    tmp_path: Path, target: Any, text: dict[str, Any]
) -> None:
    weights = weights_of(text)
    weights |= {"fc.weight": mx.zeros((64, 128), mx.int8), "fc.weight_scale": mx.ones((64, 1))}
    folder = release(tmp_path, text, PLACES["mtp.*"](weights))
    with pytest.raises(DrafterError, match=r"'mtp.fc.weight' has scales beside it, but is not of"):
        load_provider(folder, target, MtpSettings())


@pytest.mark.parametrize(
    ("scale", "named"),
    [
        ((3, 3), "has scales of the shape [3, 3], not [1, 1]"),
        ((64,), "has scales of the shape [64]"),
    ],
)
def test_scales_that_do_not_fit_are_named(
    tmp_path: Path, target: Any, text: dict[str, Any], scale: tuple[int, ...], named: str
) -> None:
    weights = {
        f"mtp.{name}": np.array(weight, np.float32) for name, weight in weights_of(text).items()
    }
    weights["mtp.fc.weight"] = np.zeros((64, 128), np.uint8)
    weights["mtp.fc.weight_scale_inv"] = np.ones(scale, np.float32)
    folder = release(tmp_path / "model", text, {"model.safetensors": OTHERS})
    write_fp8(folder / "mtp.safetensors", weights)
    with pytest.raises(DrafterError) as caught:
        load_provider(folder, target, MtpSettings())
    assert "tensor 'mtp.fc.weight'" in str(caught.value)
    assert named in str(caught.value)


# --- embeddings of its own -------------------------------------------------------------------


def test_a_head_with_embeddings_of_its_own_uses_them(
    tmp_path: Path, target: Any, text: dict[str, Any]
) -> None:
    shared = published(tmp_path / "shared", text, weights_of(text))
    own = text | {"mtp_use_dedicated_embeddings": True}
    every = target.embed(mx.arange(VOCAB)[None])[0]
    copied = weights_of(text) | {"embed_tokens.weight": every}
    same = release(tmp_path / "same", own, PLACES["mtp.*"](copied))
    assert drafts(same, target) == drafts(shared, target)
    turned = weights_of(text) | {"embed_tokens.weight": every[::-1]}
    other = release(tmp_path / "other", own, PLACES["mtp.*"](turned))
    assert drafts(other, target) != drafts(shared, target)


@pytest.mark.parametrize(
    ("rows", "named"), [(None, "lacks the tensor 'embed_tokens.weight'"), (VOCAB - 1, "")]
)
def test_embeddings_that_are_not_there_or_too_few_are_named(
    tmp_path: Path, target: Any, text: dict[str, Any], rows: int | None, named: str
) -> None:
    own = text | {"mtp_use_dedicated_embeddings": True, "vocab_size": rows or VOCAB}
    weights = weights_of(text)
    if rows:
        weights["embed_tokens.weight"] = mx.zeros((rows, 64))
    folder = release(tmp_path, own, PLACES["mtp.*"](weights))
    with pytest.raises(DrafterError) as caught:
        load_provider(folder, target, MtpSettings())
    said = f"has embeddings of {rows} tokens, target" if rows else named
    assert said in str(caught.value)
