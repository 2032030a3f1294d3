"""A head from a folder: every published form of it, and what is refused in one line."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from mlxfill import DrafterError, Engine, InputError, Sampling
from mlxfill.model.target import Target
from mlxfill.sampling import Chooser
from mlxfill_spec_qwen_mtp import MtpSettings, plugin
from mlxfill_spec_qwen_mtp.config import HeadConfig
from mlxfill_spec_qwen_mtp.head import MtpHead, parameters
from mlxfill_spec_qwen_mtp.provider import load_provider
from mlxfill_spec_qwen_mtp.split import split
from mlxfill_spec_qwen_mtp.tensors import Tensors, at_run_time
from mlxfill_testing import VOCAB, shared_model, tiny_folder, tiny_model, tiny_tokenizer

PROMPT = [7, 21, 3, 40, 55, 3, 12]
LAYER_NORMS = ("input_layernorm", "post_attention_layernorm", "q_norm", "k_norm")


def weights_of(text: Mapping[str, Any], seed: int = 3) -> Tensors:
    """Random weights at run-time scale: norms near 1."""
    mx.random.seed(seed)
    head = MtpHead(HeadConfig(text, 3))
    made = {}
    for name, weight in parameters(head).items():
        noise = mx.random.normal(weight.shape)
        made[name] = 1 + 0.1 * noise if "norm" in name else 0.2 * noise
    return made


def raw(weights: Tensors) -> Tensors:
    """As a release stores them: under ``mtp.``, norms minus 1."""
    return {f"mtp.{n}": w - 1 if "norm" in n else w for n, w in weights.items()}


def saved(
    folder: Path, text: Mapping[str, Any], weights: Tensors | None = None, **config: Any
) -> Path:
    """A split head as it is published."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"model_type": "qwen3_5_mtp", "block_size": 3, "text_config": text, **config}
    (folder / "config.json").write_text(json.dumps(content), "utf-8")
    weights = weights_of(text) if weights is None else weights
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Any:
    with Target(shared_model("qwen3_5"), tiny_tokenizer(), tmp_path / "target") as target:
        yield target


def drafts(folder: Path, target: Any, settings: MtpSettings | None = None) -> list[int]:
    """What the head in a folder guesses on a fixed story."""
    provider = load_provider(folder, target, settings or MtpSettings())
    rows = provider.open(target, [Chooser(Sampling(seed=1))], [None])
    states = mx.random.normal((1, len(PROMPT), 64), key=mx.random.key(2))
    rows.prefill(mx.array([PROMPT]), states)
    guessed: Any = rows.draft([33], 2, [len(PROMPT) + 1]).tolist()
    return list(guessed[0])


# --- forms of a head -------------------------------------------------------------------------


def test_raw_and_published_weights_give_the_same_head(
    tmp_path: Path, target: Any, text: dict[str, Any]
) -> None:
    weights = weights_of(text)
    published = saved(tmp_path / "published", text, weights)
    release = saved(tmp_path / "raw", text, raw(weights))
    assert drafts(published, target) == drafts(release, target)


def test_the_scale_of_each_norm_is_decided_for_itself(text: dict[str, Any]) -> None:
    weights = weights_of(text)
    norms = [name for name in weights if "norm" in name]
    assert {name.split(".")[-2] for name in norms} >= {*LAYER_NORMS, "norm", "pre_fc_norm_hidden"}
    for stored_raw in (norms[::2], norms[1::2]):
        mixed = {n: w - 1 if n in stored_raw else w for n, w in weights.items()}
        found = at_run_time(mixed)
        assert all(mx.allclose(found[name], weights[name], atol=1e-6) for name in weights)


def test_a_dense_head_computes_in_the_targets_precision(
    tmp_path: Path, target: Any, text: dict[str, Any]
) -> None:
    half = {name: weight.astype(mx.bfloat16) for name, weight in weights_of(text).items()}
    provider = load_provider(saved(tmp_path / "bf16", text, half), target, MtpSettings())
    assert provider.weights_bytes == 2 * sum(weight.nbytes for weight in half.values())


def quantized(
    text: Mapping[str, Any], bits: int, own: Mapping[str, dict[str, int] | bool]
) -> Tensors:
    """Weights in groups of 32, but ``own`` says otherwise for some modules."""
    head = MtpHead(HeadConfig(text, 3))
    head.load_weights(list(weights_of(text).items()))

    def chosen(path: str, module: nn.Module) -> bool | dict[str, int]:
        return own.get(path, True) if hasattr(module, "to_quantized") else False

    nn.quantize(head, group_size=32, bits=bits, class_predicate=chosen)
    return parameters(head)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("layer", ["text", "moe_text"])
def test_quantized_weights(
    request: pytest.FixtureRequest, tmp_path: Path, target: Any, layer: str, bits: int
) -> None:
    text = request.getfixturevalue(layer)
    small = quantized(text, bits, {"fc": False})
    assert "fc.scales" not in small
    quantization = {"group_size": 32, "bits": bits}
    folder = saved(tmp_path / "quantized", text, small, quantization=quantization)
    provider = load_provider(folder, target, MtpSettings())
    assert provider.weights_bytes < sum(w.nbytes for w in weights_of(text).values())
    if bits == 8:
        assert drafts(folder, target) == drafts(saved(tmp_path / "dense", text), target)


def test_modules_may_be_quantized_each_in_its_own_way(
    tmp_path: Path, target: Any, text: dict[str, Any]
) -> None:
    own = {"fc": {"group_size": 64, "bits": 8}}
    quantization = {"group_size": 32, "bits": 4, **own}
    small = quantized(text, 4, own)
    folder = saved(tmp_path / "mixed", text, small, quantization=quantization)
    assert len(drafts(folder, target)) == 2


@pytest.mark.parametrize("form", ["one by one", "gate and up in one", "stacked"])
def test_experts_in_every_published_form(
    tmp_path: Path, target: Any, moe_text: dict[str, Any], form: str
) -> None:
    weights = weights_of(moe_text)
    stacked = saved(tmp_path / "stacked", moe_text, weights)
    base = "layers.0.mlp"
    parts = {
        p: weights.pop(f"{base}.switch_mlp.{p}.weight")
        for p in ("gate_proj", "up_proj", "down_proj")
    }
    if form == "one by one":
        for name, whole in parts.items():
            weights |= {f"{base}.experts.{i}.{name}.weight": whole[i] for i in range(4)}
    elif form == "gate and up in one":
        both = mx.concatenate([parts["gate_proj"], parts["up_proj"]], axis=-2)
        weights |= {
            f"{base}.experts.gate_up_proj": both,
            f"{base}.experts.down_proj": parts["down_proj"],
        }
    else:
        weights |= {f"{base}.switch_mlp.{name}.weight": whole for name, whole in parts.items()}
    folder = saved(tmp_path / "other", moe_text, weights)
    assert drafts(folder, target) == drafts(stacked, target)


@pytest.mark.parametrize("tied", [True, False])
def test_tied_and_untied_targets(tmp_path: Path, text: dict[str, Any], *, tied: bool) -> None:
    model = shared_model("qwen3_5", tie_word_embeddings=tied)
    with Target(model, tiny_tokenizer()) as target:
        folder = saved(tmp_path / "head", text, tie_word_embeddings=tied)
        provider = load_provider(folder, target, MtpSettings())
        hidden = mx.random.normal((1, 1, 64), key=mx.random.key(7))
        rows = provider.open(target, [Chooser(Sampling(seed=1))], [None])
        logits = rows._head.logits(hidden)
        body = model.model if tied else model.language_model
        head = body.embed_tokens.as_linear if tied else body.lm_head
        assert mx.array_equal(logits, head(hidden)[:, -1])


def test_older_configs_name_their_rope_outside(
    tmp_path: Path, target: Any, text: dict[str, Any]
) -> None:
    older = {k: v for k, v in text.items() if k != "rope_parameters"}
    older |= {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}
    weights = weights_of(text)
    ours = drafts(saved(tmp_path / "older", older, weights), target)
    assert ours == drafts(saved(tmp_path / "newer", text, weights), target)


def test_the_depth_is_what_the_head_was_trained_for(
    tmp_path: Path, target: Any, text: dict[str, Any]
) -> None:
    folder = saved(tmp_path / "five", text, block_size=5)
    assert load_provider(folder, target, MtpSettings()).default_depth == 4
    (folder / "config.json").write_text(
        json.dumps({"model_type": "qwen3_5_mtp", "text_config": text}), "utf-8"
    )
    assert load_provider(folder, target, MtpSettings()).default_depth == 2


def test_other_weights_make_another_namespace(
    tmp_path: Path, target: Any, text: dict[str, Any]
) -> None:
    namespaces = set()
    for seed, settings in ((1, {}), (1, {}), (2, {}), (1, {"held_rows": "chained"})):
        folder = saved(tmp_path / f"{seed}", text, weights_of(text, seed))
        provider = load_provider(folder, target, MtpSettings(**settings))  # type: ignore[arg-type]
        namespaces.add(provider.open(target, [Chooser(Sampling(seed=1))], [None]).namespace)
    assert len(namespaces) == 3


# --- draft vocabulary ------------------------------------------------------------------------


def test_a_draft_vocabulary_lies_beside_the_weights_or_is_set(
    tmp_path: Path, target: Any, text: dict[str, Any]
) -> None:
    folder = saved(tmp_path / "head", text)
    (folder / "draft_vocab.json").write_text("[3, 7, 20]", "utf-8")
    assert set(drafts(folder, target)) <= {3, 7, 20}
    other = tmp_path / "other.json"
    other.write_text("[1, 2]", "utf-8")
    settings = MtpSettings(draft_vocab=str(other))
    assert set(drafts(folder, target, settings)) <= {1, 2}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[3, 3]", "3 after 3"),
        ("[7, 3]", "3 after 7"),
        (f"[1, {VOCAB}]", f"{VOCAB} after 1"),
        ("[-1]", "-1 after -1"),
        ('["3"]', "'3' after -1"),
        ("[true]", "True after -1"),
        ("[]", "must hold a list"),
        ('{"3": 4}', "must hold a list"),
        ("[3,", "cannot be read"),
    ],
)
def test_an_impossible_draft_vocabulary_is_named(
    tmp_path: Path, target: Any, text: dict[str, Any], content: str, named: str
) -> None:
    folder = saved(tmp_path / "head", text)
    (folder / "draft_vocab.json").write_text(content, "utf-8")
    message = refusal(folder, target)
    assert str(folder / "draft_vocab.json") in message
    assert named in message


# --- refusals --------------------------------------------------------------------------------


def refusal(folder: Path, target: Any) -> str:
    with pytest.raises(DrafterError, match=r".") as caught:
        load_provider(folder, target, MtpSettings())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_foreign_hidden_size_names_both_sides(tmp_path: Path, text: dict[str, Any]) -> None:
    folder = saved(tmp_path / "head", text)
    model = tiny_model("llama", hidden_size=32, intermediate_size=48)
    with Target(model, tiny_tokenizer(), tmp_path / "target") as target:
        message = refusal(folder, target)
    assert f"MTP head {folder} has hidden size 64" in message
    assert f"target {tmp_path / 'target'} has 32" in message


@pytest.mark.parametrize(
    "name",
    ["fc.weight", "norm.weight", "layers.0.self_attn.q_proj.weight", "pre_fc_norm_hidden.weight"],
)
def test_a_missing_tensor_is_named_with_its_file(
    tmp_path: Path, target: Any, text: dict[str, Any], name: str
) -> None:
    weights = weights_of(text)
    del weights[name]
    folder = saved(tmp_path / "head", text, weights)
    message = refusal(folder, target)
    assert str(folder / "model.safetensors") in message
    assert repr(name) in message


def test_a_missing_expert_is_named(tmp_path: Path, target: Any, moe_text: dict[str, Any]) -> None:
    weights = weights_of(moe_text)
    whole = weights.pop("layers.0.mlp.switch_mlp.up_proj.weight")
    weights |= {f"layers.0.mlp.experts.{i}.up_proj.weight": whole[i] for i in (0, 1, 3)}
    message = refusal(saved(tmp_path / "head", moe_text, weights), target)
    assert "expert 2 of layers.0.mlp.switch_mlp.up_proj.weight" in message


def test_a_tensor_of_another_shape_is_named_with_both(
    tmp_path: Path, target: Any, text: dict[str, Any]
) -> None:
    weights = {**weights_of(text), "fc.weight": mx.zeros((64, 64))}
    message = refusal(saved(tmp_path / "head", text, weights), target)
    assert "'fc.weight' has the shape [64, 64]" in message
    assert "says [64, 128]" in message


def test_a_tensor_without_a_use_is_named(tmp_path: Path, target: Any, text: dict[str, Any]) -> None:
    weights = {**weights_of(text), "layers.1.mlp.up_proj.weight": mx.zeros((96, 64))}
    assert "'layers.1.mlp.up_proj.weight'" in refusal(saved(tmp_path / "h", text, weights), target)


def test_broken_or_absent_weights_are_named(
    tmp_path: Path, target: Any, text: dict[str, Any]
) -> None:
    folder = saved(tmp_path / "head", text)
    (folder / "model.safetensors").write_bytes(b"nothing of the kind")
    assert f"{folder / 'model.safetensors'} is no whole safetensors file" in refusal(folder, target)
    (folder / "model.safetensors").unlink()
    assert f"{folder} has no *.safetensors" in refusal(folder, target)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "deepseek_v4_mtp"}, "'deepseek_v4_mtp' is no head that this plugin knows"),
        ({"model_type": "llama"}, "is an EAGLE draft head"),  # by the names of its tensors
        ({"model_type": "deepseek_mtp"}, "is an MTP head"),
        ({"dflash_config": {}, "model_type": "qwen3"}, "is a DFlash block drafter"),
        ({"block_size": 1}, "block_size must be at least 2, not 1"),
        ({"text_config": {"hidden_size": 64}}, "lacks 'num_attention_heads'"),
    ],
)
def test_a_config_of_something_else_is_refused(
    tmp_path: Path, target: Any, text: dict[str, Any], change: dict[str, Any], named: str
) -> None:
    folder = saved(tmp_path / "head", text)
    config = json.loads((folder / "config.json").read_text("utf-8")) | change
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    message = refusal(folder, target)
    assert named in message
    assert str(folder / "config.json") in message


def test_a_full_model_given_as_a_head_is_refused_as_one(tmp_path: Path, target: Any) -> None:
    folder = tiny_folder(tmp_path / "model")
    assert refusal(folder, target).endswith(f"; {folder} is a language model")
    with pytest.raises(DrafterError, match="is a language model"):
        engine_at(draft=folder, draft_kind="qwen-mtp")


def test_a_closed_head_is_refused(tmp_path: Path, target: Any, text: dict[str, Any]) -> None:
    provider = load_provider(saved(tmp_path / "head", text), target, MtpSettings())
    provider.close()
    with pytest.raises(DrafterError, match="closed"):
        provider.open(target, [Chooser(Sampling(seed=1))], [None])


def test_only_heads_are_detected(tmp_path: Path, text: dict[str, Any]) -> None:
    (kind,) = plugin.mlxfill_draft_kinds()
    folder = saved(tmp_path / "head", text)
    assert kind.detect(folder)
    assert not kind.fallback
    assert not kind.detect(tmp_path)
    others = ("deepseek_mtp", "mimo_mtp", "qwen3_5_mtp_mtp", "glm4_moe_mtp", "qwen3_5")
    for content in (
        *(json.dumps({"model_type": name}) for name in others),
        "{}",
        "[]",
        "no json",
        '{"model_type": 3}',
    ):
        (folder / "config.json").write_text(content, "utf-8")
        assert not kind.detect(folder)


# --- through the engine ----------------------------------------------------------------------


def engine_at(**options: Any) -> Engine:
    return Engine(
        shared_model("qwen3_5"),
        tiny_tokenizer(),
        plugins=["spec-qwen-mtp"],
        config={"gate": {"enabled": False}},
        **options,
    )


@pytest.mark.parametrize("beside", [True, False])
def test_a_folder_drafts_through_the_engine(
    tmp_path: Path, text: dict[str, Any], *, beside: bool
) -> None:
    folder = saved(tmp_path / "mtp", text)
    where = {"path": tmp_path} if beside else {"draft": folder}
    with engine_at(**where) as engine:
        spec = engine.generate(PROMPT, max_tokens=20, eos_token_ids=[]).stats.spec
    assert spec["drafter"] == "spec-qwen-mtp"
    assert len(spec["drafted_by_position"]) == 2


@pytest.mark.parametrize("kind", ["deepseek_mtp", "glm4_moe_mtp", "mimo_mtp"])
def test_a_head_of_another_family_is_named_for_what_it_is(
    tmp_path: Path, text: dict[str, Any], kind: str
) -> None:
    folder = saved(tmp_path / "head", text)
    (folder / "config.json").write_text(json.dumps({"model_type": kind}), "utf-8")
    with pytest.raises(DrafterError, match=r"is an MTP head; no installed plugin loads it"):
        engine_at(draft=folder)


# --- mtp split -------------------------------------------------------------------------------


@pytest.fixture
def release(tmp_path: Path, moe_text: dict[str, Any]) -> Path:
    """A raw release in two shards: parts of a target, and a head with experts one by one."""
    folder = tmp_path / "release"
    folder.mkdir()
    weights = weights_of(moe_text)
    for name in ("gate_proj", "up_proj", "down_proj"):
        whole = weights.pop(f"layers.0.mlp.switch_mlp.{name}.weight")
        weights |= {f"layers.0.mlp.experts.{i}.{name}.weight": whole[i] for i in range(4)}
    head = raw(weights)
    names = sorted(head)
    shards = {
        "model-1.safetensors": {"model.norm.weight": mx.ones(4)}
        | {name: head[name] for name in names[::2]},
        "model-2.safetensors": {name: head[name] for name in names[1::2]},
        "model-3.safetensors": {"lm_head.weight": mx.ones((4, 4))},
    }
    index: dict[str, str] = {}
    for file, tensors in shards.items():
        mx.save_safetensors(str(folder / file), tensors)
        index |= dict.fromkeys(tensors, file)
    text = json.dumps({"weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text, "utf-8")
    config = {"model_type": "qwen3_5_moe", "tie_word_embeddings": False, "text_config": moe_text}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def test_split_writes_the_published_form(
    release: Path, tmp_path: Path, target: Any, moe_text: dict[str, Any]
) -> None:
    out = tmp_path / "new" / "head"
    assert split(release, out) == len(weights_of(moe_text))
    assert sorted(file.name for file in out.iterdir()) == ["config.json", "model.safetensors"]
    written: Any = mx.load(str(out / "model.safetensors"))
    expected = weights_of(moe_text)
    assert written.keys() == expected.keys()
    assert all(mx.allclose(written[n], expected[n], atol=1e-6) for n in expected)
    config = json.loads((out / "config.json").read_text("utf-8"))
    assert config["model_type"] == "qwen3_5_mtp"
    assert config["block_size"] == 3
    assert config["tie_word_embeddings"] is False
    assert config["text_config"]["hidden_size"] == 64
    assert "quantization" not in config
    assert drafts(out, target) == drafts(saved(tmp_path / "direct", moe_text), target)


def test_split_keeps_quantized_weights(tmp_path: Path, target: Any, text: dict[str, Any]) -> None:
    folder = tmp_path / "release"
    folder.mkdir()
    weights = {f"mtp.{name}": weight for name, weight in quantized(text, 8, {}).items()}
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    quantization = {"group_size": 32, "bits": 8, "model.embed_tokens": {"bits": 6}}
    config = {"model_type": "qwen3_5", "quantization": quantization, "text_config": text}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    split(folder, tmp_path / "out", block_size=5)
    written = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))
    assert written["quantization"] == {"group_size": 32, "bits": 8, "mode": "affine"}
    assert written["block_size"] == 5
    assert load_provider(tmp_path / "out", target, MtpSettings()).default_depth == 4


def splitting(release: Path, out: Path) -> str:
    with pytest.raises(DrafterError, match=r".") as caught:
        split(release, out)
    assert "\n" not in str(caught.value)
    assert not (out / "model.safetensors").exists()
    return str(caught.value)


def test_a_promised_head_that_is_not_there_is_named(release: Path, tmp_path: Path) -> None:
    (release / "model.safetensors.index.json").unlink()
    for number in (1, 2):
        (release / f"model-{number}.safetensors").unlink()
    message = splitting(release, tmp_path / "out")
    assert f"{release} holds no MTP head among its weights" in message
    assert "promises one (mtp_num_hidden_layers 1)" in message


def test_a_head_with_a_gap_is_not_split(release: Path, tmp_path: Path) -> None:
    index = release / "model.safetensors.index.json"
    shards = json.loads(index.read_text("utf-8"))["weight_map"]
    lost = next(name for name in shards if name.endswith("k_proj.weight"))
    file = release / shards[lost]
    rest: Any = mx.load(str(file))
    del rest[lost]
    mx.eval(rest)
    mx.save_safetensors(str(file), rest)
    assert "'layers.0.self_attn.k_proj.weight'" in splitting(release, tmp_path / "out")


def test_a_missing_shard_is_named(release: Path, tmp_path: Path) -> None:
    (release / "model-2.safetensors").unlink()
    assert "lacks the shard model-2.safetensors" in splitting(release, tmp_path / "out")


def test_a_folder_in_use_is_left_alone(release: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine", "utf-8")
    assert f"{out} is not empty" in splitting(release, out)
    assert [file.name for file in out.iterdir()] == ["notes.txt"]


def test_a_folder_that_cannot_be_written_is_named(release: Path, tmp_path: Path) -> None:
    taken, out = tmp_path / "taken", tmp_path / "out"
    taken.write_text("mine", "utf-8")
    assert splitting(release, taken) == f"{taken} cannot be written: File exists"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        assert splitting(release, out) == f"{out} cannot be written: File too large"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(out.iterdir()) == []


# --- the command -----------------------------------------------------------------------------

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    from mlxfill.cli import main

    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_the_command_splits(run: Run, release: Path, tmp_path: Path, target: Any) -> None:
    code, out, err = run("mtp", "split", release, tmp_path / "head")
    assert (code, err) == (0, "")
    assert f"--draft {tmp_path / 'head'}" in out
    assert len(drafts(tmp_path / "head", target)) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (["RELEASE", "RELEASE"], 1, "is not empty"),
        (["nowhere", "out"], 1, "nowhere has no config.json"),
        (["RELEASE", "out", "--block-size", "1"], 2, "--block-size must be at least 2, not 1"),
        (["RELEASE"], 2, "OUT"),
    ],
)
def test_wrong_use_gets_one_line(
    run: Run, release: Path, arguments: list[str], status: int, named: str
) -> None:
    given = [str(release) if word == "RELEASE" else word for word in arguments]
    code, out, err = run("mtp", "split", *given)
    assert (code, out) == (status, "")
    assert named in err
    assert err.count("\n") == 1


def test_the_help_page_names_the_command(run: Run) -> None:
    code, out, _ = run("mtp", "--help")
    assert code == 0
    assert "split" in out


# --- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"draft_vocab": ""}, ["draft_vocab", "path", "''"]),
        ({"draft_vocab": 3}, ["draft_vocab", "path", "3"]),
        ({"held_rows": "no"}, ["held_rows", "'true'", "'chained'", "no"]),
    ],
)
def test_an_illegal_setting_gets_one_line_that_names_it(
    values: dict[str, Any], named: list[str]
) -> None:
    with pytest.raises(InputError, match=r".") as caught:
        MtpSettings(**values)
    message = str(caught.value)
    assert "\n" not in message
    assert [word for word in named if word not in message] == []
