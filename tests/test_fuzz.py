"""What fuzzing found stays mended, and a little fuzzing in every run: see ``tools/fuzz.py``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fuzz_mutations import of_json, of_words
from fuzz_targets import TARGETS, WrongError, close, only_ours, options, place, safetensors, sealed
from mlxfill import InputError
from mlxfill_testing import tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

FOUND = {
    "options": [
        b'{"template_options": null}',
        b'{"template_options": false}',
        b'{"template_options": [[]]}',
        b'{"input_embeddings": 0.5}',
        b'{"input_embeddings": true}',
        b'{"snapshot_at": 3, "cache": -1}',
        b'{"session": {"type": "a"}, "sources": []}',
        b'{"sampling": {"\\n": "function"}}',
    ],
    "messages": [b'{"messages": "a", "tools": 1}', b'{"messages": "a", "tools": true}'],
    "weights": [b"i0", b"i[]", b"inull", b'i"a"', b'i{"weight_map": [1]}'],
    "schema": [
        b'{"const": -9223372036854775808}',
        b'{"enum": [-9223372036854775807]}',
        b'{"type": "integer", "multipleOf": 2147483648}',
    ],
    "config": [b"[plugins.i-llhefco]\nk = 8\n[plugins.spc-ngram]\nmat8ch = 'first'\n"],
}
"""Inputs that once brought out something else than an error of mlxfill's own."""
SLOW = {"arguments": 2, "tools": 6, "messages": 12, "schema": 12, "template": 40}
"""Examples; a hundred of what is not named here."""


@pytest.fixture(autouse=True, scope="module")
def workplace() -> Iterator[None]:
    """Targets move to an empty folder; the tests after them find things as they were."""
    mx.set_default_device(mx.cpu)
    here, held = os.getcwd(), dict(os.environ)  # noqa: PTH109 - what os.chdir takes back
    place()
    yield
    close()
    os.chdir(here)
    os.environ.clear()
    os.environ.update(held)


@pytest.mark.parametrize(
    ("target", "data"),
    [
        pytest.param(name, data, id=f"{name}-{data[:40]!r}")
        for name, target in TARGETS.items()
        for data in (*target.seeds, *FOUND.get(name, ()))
    ],
)
def test_what_was_found_once(target: str, data: bytes) -> None:
    TARGETS[target].run(data)


@pytest.mark.parametrize("name", TARGETS)
def test_any_input_is_taken_or_refused(name: str) -> None:
    target = TARGETS[name]
    change = (target.mutator or of_words)(target.words)

    @settings(
        max_examples=SLOW.get(name, 100),
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(target.seeds), st.lists(st.integers(0, 1 << 30), max_size=4))
    def hunt(data: bytes, seeds: list[int]) -> None:
        for seed in seeds:
            data = change(data, 1000, seed)
        target.run(data)

    hunt()


# --- the tools themselves ---------------------------------------------------------------------


def test_an_error_of_ours_passes_and_others_do_not() -> None:
    with only_ours():
        raise InputError("k must be at least 1, not 0")
    with pytest.raises(WrongError), only_ours():
        raise InputError("two\nlines")
    with pytest.raises(WrongError), only_ours():
        raise InputError("")
    with pytest.raises(TypeError), only_ours():
        raise TypeError


def test_a_fault_of_a_plugin_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import mlxfill_spec_ngram.plugin

    monkeypatch.delattr(mlxfill_spec_ngram.plugin, "NgramSource", raising=True)
    with pytest.raises(WrongError, match="NgramSource"):
        options(b"{}")


def test_a_template_is_tried_on_a_tokenizer_of_its_own() -> None:
    before = tiny_tokenizer().chat_template
    TARGETS["template"].run(b"{{ messages | length }}")
    assert tiny_tokenizer().chat_template == before


def test_json_stays_json_and_words_stay_words() -> None:
    change = of_json(())
    made = [change(b'{"a": [1, {"b": null}]}', 200, seed) for seed in range(200)]
    readable = [data for data in made if _is_json(data)]
    assert len(readable) > 120
    assert len(set(made)) > 100
    assert max(map(len, made)) <= 200
    lines = [of_words(("one", "two"))(b"zero\nthree", 30, seed) for seed in range(100)]
    assert {b"one", b"two", b"zero"} <= {word for line in lines for word in line.split(b"\n")}


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def test_a_seal_fits_whatever_it_seals() -> None:
    from mlxfill import Checkpoint, CheckpointError

    path = place() / "sealed"
    path.write_bytes(sealed(b""))
    with pytest.raises(CheckpointError, match="holds no generation"):
        Checkpoint.load(path)
    path.write_bytes(safetensors({}))
    with pytest.raises(CheckpointError, match="no checkpoint of mlxfill"):
        Checkpoint.load(path)
