"""Whatever a drafter says, the text is the target's, alone and in rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfill
from mlxfill import Engine, Result, RowScheduler
from mlxfill_testing import EOS, tiny_folder

PROMPTS = ([7, 21, 3, 40, 55, 3, 12, 7, 21], [9], [4, 4, 4, 17, 30, 2, 8, 8, 1, 60, 5, 11, 13, 7])
TARGETS: dict[str, dict[str, Any]] = {
    "qwen3": {"num_hidden_layers": 4},
    "qwen3_5": {},
    "gemma3_text": {},
}
KINDS = ["dflash", "dflash sliding", "dflash2", "dspark"]


@pytest.fixture(scope="session")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of targets with plain, recurrent and sliding caches."""
    root = tmp_path_factory.mktemp("targets")
    return {name: str(tiny_folder(root / name, name, **TARGETS[name])) for name in TARGETS}


@pytest.fixture(scope="session")
def engines(
    targets: dict[str, str], folders: dict[str, Path]
) -> Iterator[dict[tuple[str, str], Engine]]:
    """An engine of each target, plain and with each drafter that fits it."""
    made: dict[tuple[str, str], Engine] = {}
    config = {"gate": {"enabled": False}}
    for name, folder in targets.items():
        made[name, ""] = mlxfill.load(folder, plugins=[])
        for kind in KINDS if name == "qwen3_5" else KINDS[:2]:
            made[name, kind] = mlxfill.load(
                folder, draft=str(folders[kind]), plugins=["spec-dflash"], config=config
            )
    yield made
    for engine in made.values():
        engine.close()


def written(engine: Engine, prompt: list[int], **options: Any) -> Result:
    options = {"max_tokens": 24, "eos_token_ids": [EOS], "seed": 3, **options}
    result = engine.generate(prompt, **options)
    assert_well(result)
    return result


def assert_well(result: Result) -> None:
    """Nothing went wrong but that a random drafter is right by chance only."""
    assert [fault for fault in result.faults if "by chance" not in fault.message] == []


@pytest.mark.parametrize("name", TARGETS)
@given(
    kind=st.sampled_from(KINDS),
    prompt=st.sampled_from(PROMPTS),
    temperature=st.sampled_from([0.0, 0.7, 1.2]),
    depth=st.integers(1, 6),
    penalty=st.sampled_from([None, None, 1.3]),
    seed=st.integers(0, 99),
)
def test_the_text_is_that_of_plain_decoding(  # noqa: PLR0913, PLR0917 - one example
    engines: dict[tuple[str, str], Engine],
    name: str,
    kind: str,
    prompt: list[int],
    temperature: float,
    depth: int,
    penalty: float | None,
    seed: int,
) -> None:
    options = {"temperature": temperature, "seed": seed, "repetition_penalty": penalty}
    plain = written(engines[name, ""], prompt, **options)
    drafting = engines.get((name, kind)) or engines[name, "dflash"]
    result = written(drafting, prompt, num_draft_tokens=depth, **options)
    assert result.tokens == plain.tokens
    assert result.finish_reason == plain.finish_reason
    assert result.stats.spec["drafted"] > 0


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.2])
def test_rows_say_what_each_says_alone(
    engines: dict[tuple[str, str], Engine], name: str, temperature: float
) -> None:
    prompts = [*PROMPTS, PROMPTS[0][:4]]
    options: dict[str, Any] = {"temperature": temperature, "max_tokens": 20}
    options["eos_token_ids"] = [EOS]
    engine = engines[name, "dflash"]
    rows = RowScheduler(engine, max_rows=3)
    runs = [engine.stream(prompt, seed=at, **options) for at, prompt in enumerate(prompts)]
    for run in runs:
        rows.add(run)
    while len(rows):
        list(rows.round())
    for at, (prompt, run) in enumerate(zip(prompts, runs, strict=True)):
        result = run.result()
        assert result.tokens == written(engines[name, ""], prompt, seed=at, **options).tokens
        assert_well(result)
        assert result.stats.spec["drafted"] > 0


def test_a_round_is_read_once(
    engines: dict[tuple[str, str], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxfill.model import reading

    reads: list[int] = []
    read = reading.ids

    def counted(array: Any) -> list[int]:
        reads.append(array.size)
        return read(array)

    monkeypatch.setattr("mlxfill.forward.runner.ids_of", counted)
    result = written(engines["qwen3_5", "dspark"], PROMPTS[0], eos_token_ids=[])
    assert len(reads) == len(result.stats.spec["acceptance_lengths"]) > 0
    assert max(reads) == 5 + 6  # drafts and samples together
