"""What requests share, and what they do not: prompts that were read before, and adapters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

import mlxfill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHAT = "/v1/chat/completions"
HELLO: Any = [{"role": "user", "content": "Where is send_key used?"}]


def test_a_next_turn_does_not_read_the_earlier_ones_again(served: Any) -> None:
    system = {"role": "system", "content": "You answer in one word. " * 10}
    messages = [system, *HELLO]
    with served.http() as http:
        first = http.post(CHAT, json={"messages": messages, "max_tokens": 60}).json()
        again = http.post(CHAT, json={"messages": messages, "max_tokens": 60}).json()
        reply = first["choices"][0]["message"]
        turn = [*messages, reply, {"role": "user", "content": "And now?"}]
        later = http.post(CHAT, json={"messages": turn, "max_tokens": 20}).json()
    assert again["choices"] == first["choices"]
    for answer in (again, later):
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached > 60
        assert cached < answer["usage"]["prompt_tokens"]


# --- adapters -----------------------------------------------------------------------------


def make_adapter(folder: Path, seed: int) -> str:
    """A LoRA adapter of the tiny model with random weights."""
    from mlx_lm.tuner.utils import linear_to_lora_layers

    parameters = {"rank": 4, "scale": 4.0, "dropout": 0.0}
    with mlxfill.load("tiny", plugins=[], config={}) as engine:
        linear_to_lora_layers(engine.model, 2, parameters)
        arrays: Any = tree_flatten(engine.model.parameters())
        mx.random.seed(seed)
        weights = {
            name: mx.random.normal(array.shape) * 0.1
            for name, array in arrays
            if name.endswith(("lora_a", "lora_b"))
        }
    folder.mkdir()
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    config = {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": parameters}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("adapters")
    return {name: make_adapter(folder / name, at) for at, name in enumerate(("sql", "poems"))}


@pytest.fixture(scope="module")
def adapted(load_tiny: Any, serve_tiny: Any, adapters: dict[str, str]) -> Iterator[Any]:
    """A server with both of them."""
    with serve_tiny(lambda: load_tiny(adapters=adapters), adapters=adapters) as served:
        yield served


@pytest.fixture(scope="module")
def expected(adapters: dict[str, str]) -> dict[str | None, str]:
    """What the model says that was loaded with one adapter alone."""
    said = {}
    for name in (None, *adapters):
        path = None if name is None else adapters[name]
        with mlxfill.load("tiny", plugins=[], config={}, adapter_path=path) as engine:
            said[name] = engine.generate(HELLO, max_tokens=16).text
    assert len(set(said.values())) == 3
    return said


def said(answer: dict[str, Any]) -> str:
    return "".join(token["text"] for token in answer["choices"][0]["mlxfill"]["tokens"])


def test_an_adapter_is_chosen_by_field_or_by_name_of_the_model(
    adapted: Any, expected: dict[str | None, str]
) -> None:
    body = {"messages": HELLO, "max_tokens": 16, "mlxfill": {"origins": True}}
    with adapted.http() as http:
        names = [model["id"] for model in http.get("/v1/models").json()["data"]]
        assert names == ["tiny", "tiny:sql", "tiny:poems"]
        assert http.get("/v1/models/tiny:sql").json()["id"] == "tiny:sql"
        for name in ("sql", None, "poems", "sql", None):
            by_field = http.post(CHAT, json={**body, "adapters": name}).json()
            assert said(by_field).startswith(expected[name][:20])
            model = "tiny" if name is None else f"tiny:{name}"
            by_name = http.post(CHAT, json={**body, "model": model}).json()
            assert said(by_name) == said(by_field) == expected[name]
            assert by_name["model"] == by_field["model"] == model


def test_streams_under_different_adapters_at_once_are_each_its_own(
    adapted: Any, expected: dict[str | None, str]
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    body = {"messages": HELLO, "max_tokens": 16, "mlxfill": {"origins": True}}
    names = ["sql", None, "poems"] * 4

    def ask(name: str | None) -> str:
        return said(http.post(CHAT, json={**body, "adapters": name}).json())

    with adapted.http() as http, ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(ask, names)) == [expected[name] for name in names]


def test_an_adapter_that_is_not_mounted_is_refused(adapted: Any) -> None:
    with adapted.http() as http:
        for name in ("prose", "../sql", "", "sql/../poems"):
            refused = http.post(CHAT, json={"messages": HELLO, "adapters": name})
            assert refused.status_code == 400
            assert "there are: sql, poems" in refused.json()["error"]["message"]
        both = {"messages": HELLO, "model": "tiny:sql", "adapters": "poems"}
        assert http.post(CHAT, json=both).status_code == 400
        assert http.post(CHAT, json={**both, "model": "tiny:prose"}).status_code == 404
