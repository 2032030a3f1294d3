"""What the tests share: the CPU, one hypothesis profile, heads made in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, settings
from mlx.utils import tree_map_with_path, tree_unflatten

from mlxfill import DraftKind, TargetView
from mlxfill_spec_qwen_mtp.chain import Head
from mlxfill_spec_qwen_mtp.config import HeadConfig
from mlxfill_spec_qwen_mtp.head import MtpHead, parameters
from mlxfill_spec_qwen_mtp.provider import MtpProvider
from mlxfill_testing import VOCAB, Guest, tiny_model

# Windows and steps are bit-identical on the CPU with the BLAS of the wheel, not on every GPU.
mx.set_default_device(mx.cpu)

settings.register_profile(
    "mtp drafts",
    max_examples=10,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def pytest_collectstart(collector: pytest.Collector) -> None:  # noqa: ARG001 - the hook's name
    """These tests have a profile of their own."""
    settings.load_profile("mtp drafts")


HIDDEN = 64
TEXT: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "vocab_size": VOCAB,
    "tie_word_embeddings": True,
    "mtp_num_hidden_layers": 1,
    "rope_parameters": {"type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
}
MOE: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "norm_topk_prob": True,
}
BLOCK_OUTPUTS = ("out_proj", "o_proj", "down_proj", "c_proj")


@pytest.fixture(autouse=True)
def own_cache_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from or written to the user's own folders."""
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))


@pytest.fixture
def text() -> dict[str, Any]:
    """The text config of a dense head that fits the tiny random models."""
    return dict(TEXT)


@pytest.fixture
def moe_text() -> dict[str, Any]:
    """The same with a mixture of experts in the layer."""
    return {**TEXT, **MOE}


def head_of(noise: float, seed: int = 0, **changes: Any) -> MtpHead:
    """A head that predicts from the token alone, plus noise: see ``quiet``."""
    mx.random.seed(seed)
    head = MtpHead(HeadConfig({**TEXT, **changes}, 3))

    def shaped(path: str, weight: mx.array) -> mx.array:
        plain = mx.zeros_like(weight)
        if path == "fc.weight":
            plain[:, :HIDDEN] = mx.eye(HIDDEN)
        elif "norm" in path:
            plain = mx.ones_like(weight)
        elif not any(name in path for name in BLOCK_OUTPUTS):
            plain = weight
        return plain + noise * mx.random.normal(weight.shape)

    head.update(tree_map_with_path(shaped, tree_unflatten(list(parameters(head).items()))))
    head.eval()
    mx.eval(parameters(head))
    return head


def quiet(name: str, **changes: Any) -> Any:
    """A target whose blocks add little: mostly the last token decides what comes next.

    A head that predicts from the token alone is right about it most of the time.
    """
    model = tiny_model(name, **changes)

    def damped(path: str, weight: mx.array) -> mx.array:
        if "layers" not in path and "norm" in path:
            return mx.zeros_like(weight) if name.startswith("gemma") else mx.ones_like(weight)
        return 0.02 * weight if any(part in path for part in BLOCK_OUTPUTS) else weight

    model.update(tree_map_with_path(damped, model.parameters()))
    mx.eval(model.parameters())
    return model


class Mounted:
    """A head as the kind of drafter that ``Guest`` offers."""

    def __init__(self, module: MtpHead, options: dict[str, Any]) -> None:
        self.module, self.options = module, options

    def kind(self, origin: str) -> DraftKind:
        """Needs no folder: the head is here."""

        def load(_: object, target: TargetView, __: object) -> MtpProvider:
            head = Head(self.module, target, self.options.get("vocabulary"))
            held = self.options.get("held_rows", "true")
            return MtpProvider(head, self.options.get("block_size", 3), held, "memory")

        return DraftKind("scripted", origin, lambda _folder: False, load, needs_artifact=False)


@pytest.fixture
def drafting() -> Callable[..., Guest]:
    """Make a plugin that drafts with a head of so much noise, plus what a ``Guest`` can do."""

    def make(noise: float = 0.0, *, name: str = "guest", sources: Any = (), **more: Any) -> Guest:
        layer = more.pop("layer", {})
        mounted: Any = Mounted(head_of(noise, **layer), more)
        return Guest(name=name, drafter=mounted, origin="mtp", sources=sources)

    return make


@pytest.fixture
def make_head() -> Callable[..., MtpHead]:
    """``head_of``."""
    return head_of


@pytest.fixture
def make_target() -> Callable[..., Any]:
    """``quiet``."""
    return quiet
