from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from mlxfill import Limits, Request, Sampling
from mlxfill_spec_ngram import NgramSettings, plugin

UNUSED = cast("Any", None)


def request(*prompt_ids: int) -> Request:
    return Request(
        prompt_ids=prompt_ids,
        prompt_text="",
        messages=None,
        tools=None,
        sampling=Sampling(),
        limits=Limits(max_tokens=10),
        tokenizer=UNUSED,
        render=lambda *_: "",
        eos_ids=frozenset(),
    )


@pytest.mark.parametrize(
    ("settings", "ids"), [(None, (2, 3, 4, 1)), (NgramSettings(adaptive=False, depth=2), (2, 3))]
)
def test_a_request_gets_one_source_that_knows_its_prompt(
    settings: NgramSettings | None, ids: tuple[int, ...]
) -> None:
    (source,) = plugin.mlxfill_proposal_sources(request(1, 2, 3, 4, 1), settings)
    proposal = source.propose(UNUSED)
    assert proposal is not None
    assert proposal.origin == "ngram"
    assert proposal.ids == ids


def test_requests_do_not_share_a_history() -> None:
    (one,) = plugin.mlxfill_proposal_sources(request(1, 2, 3), None)
    (two,) = plugin.mlxfill_proposal_sources(request(1, 2, 3), None)
    one.observe([1])
    assert one.propose(UNUSED) is not None
    assert two.propose(UNUSED) is None


def test_the_settings_class_is_declared() -> None:
    assert plugin.mlxfill_settings() is NgramSettings


def test_the_drafter_needs_no_artifact_and_claims_none(tmp_path: Path) -> None:
    (kind,) = plugin.mlxfill_draft_kinds()
    assert (kind.name, kind.origin, kind.needs_artifact) == ("ngram", "ngram", False)
    assert not kind.detect(tmp_path)
    provider = kind.load(None, UNUSED, None)
    assert (provider.id, provider.default_depth, provider.weights_bytes) == ("ngram", 10, 0)
    assert provider.open(UNUSED, UNUSED, [None, None]).row_count == 2


def test_the_drafter_takes_the_settings() -> None:
    (kind,) = plugin.mlxfill_draft_kinds()
    settings = NgramSettings(depth=5, match="first")
    provider = kind.load(None, UNUSED, settings)
    assert provider.default_depth == 5
    rows = provider.open(UNUSED, UNUSED, [None])
    assert rows.capture(0).namespace == settings.namespace


def test_the_entry_point_imports_no_heavy_library() -> None:
    script = (
        "import sys, mlxfill_spec_ngram.plugin as plugin;"
        "heavy = {'mlx', 'mlx_lm', 'numpy', 'transformers'};"
        "print(sorted(heavy & set(sys.modules)), plugin.MLXFILL_API)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["[]", "2"]
