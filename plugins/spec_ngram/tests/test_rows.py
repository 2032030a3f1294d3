from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import mlx.core as mx
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from mlxfill import DraftCheckpoint, DrafterError
from mlxfill_spec_ngram import NgramProvider, NgramRows, NgramSettings, RuleGuesser, make_lookup

SETTINGS = NgramSettings()
UNUSED = cast("Any", None)
PROMPT = [1, 2, 3, 4, 5, 6, 7, 8]


def rows(*checkpoints: DraftCheckpoint | None, settings: NgramSettings = SETTINGS) -> NgramRows:
    provider = NgramProvider(settings.namespace, partial(make_lookup, settings), settings.depth)
    return provider.open(UNUSED, UNUSED, checkpoints)


def prefilled(*prompts: Sequence[int]) -> NgramRows:
    opened = rows(*[None] * len(prompts))
    opened.prefill(mx.array(prompts))
    return opened


def drafts(opened: NgramRows, *pending: int, depth: int = 10) -> list[list[int]]:
    return opened.draft(list(pending), depth, [0] * len(pending))


def history(opened: NgramRows, row: int = 0) -> list[int]:
    return cast("list[int]", opened.capture(row).tensors["ids"].tolist())


def test_a_draft_follows_the_pending_id() -> None:
    assert drafts(prefilled(PROMPT), 2) == [[3, 4, 5, 6]]
    assert drafts(prefilled(PROMPT), 2, depth=2) == [[3, 4]]
    assert drafts(prefilled(PROMPT), 2, depth=0) == [[]]
    assert drafts(prefilled(PROMPT), 9) == [[]]


def test_a_round_adds_the_pending_id_and_what_was_accepted() -> None:
    opened = prefilled(PROMPT)
    drafts(opened, 2)
    opened.commit([[3, 4, 9]])
    assert history(opened) == [*PROMPT, 2, 3, 4]
    assert drafts(opened, 9) == [[]]
    opened.commit([[1]])
    assert history(opened) == [*PROMPT, 2, 3, 4, 9]
    assert drafts(opened, 1)[0][:2] == [2, 3]


def test_consumed_ids_count_to_their_length() -> None:
    opened = prefilled(PROMPT, PROMPT)
    opened.consume(mx.array([[9, 5, 6], [9, 0, 0]]), [3, 1])
    assert history(opened, 0) == [*PROMPT, 9, 5, 6]
    assert history(opened, 1) == [*PROMPT, 9]
    assert [draft[0] for draft in drafts(opened, 7, 1)] == [8, 2]


def test_an_empty_draft_may_be_followed_by_consumed_ids() -> None:
    opened = prefilled(PROMPT)
    assert drafts(opened, 50) == [[]]
    assert history(opened) == PROMPT
    opened.consume(mx.array([[50, 51]]), [2])
    assert history(opened) == [*PROMPT, 50, 51]
    opened.consume(mx.array([[50, 1]]), [1])
    assert history(opened) == [*PROMPT, 50, 51, 50]


def test_a_draft_asked_for_twice_is_the_same() -> None:
    opened = prefilled(PROMPT)
    assert drafts(opened, 2) == drafts(opened, 2)
    opened.commit([[3]])
    assert history(opened) == [*PROMPT, 2]


def test_prompts_may_come_in_pieces() -> None:
    opened = rows(None)
    opened.prefill(mx.array([PROMPT[:3]]))
    opened.prefill(mx.array([PROMPT[3:]]))
    assert drafts(opened, 3) == drafts(prefilled(PROMPT), 3)


IDS = st.lists(st.integers(0, 4), min_size=1, max_size=30)


@given(st.lists(IDS, min_size=1, max_size=4), st.data())
def test_a_row_in_a_batch_is_what_it_would_be_alone(
    prompts: list[list[int]], data: st.DataObject
) -> None:
    alone = [prefilled(prompt) for prompt in prompts]
    batch = rows()
    batch.append([UNUSED] * len(alone), [row.capture(0) for row in alone])
    for _ in range(3):
        pending = [data.draw(st.integers(0, 4)) for _ in prompts]
        expected = [drafts(row, token)[0] for row, token in zip(alone, pending, strict=True)]
        assert drafts(batch, *pending) == expected
        accepted = [data.draw(IDS) for _ in prompts]
        for row, ids in zip(alone, accepted, strict=True):
            row.commit([ids])
        batch.commit(accepted)


def test_rows_leave_join_and_change_places() -> None:
    opened = prefilled([1, 2, 3], [4, 5, 6], [7, 8, 9])
    opened.keep([2, 0])
    assert opened.row_count == 2
    opened.append([UNUSED] * 2, [None, prefilled([5, 5]).capture(0)])
    assert [history(opened, row) for row in range(4)] == [[7, 8, 9], [1, 2, 3], [], [5, 5]]
    assert [draft[:1] for draft in drafts(opened, 7, 1, 1, 5)] == [[8], [2], [], [5]]
    opened.close()
    assert opened.row_count == 0


def test_a_checkpoint_is_owned_and_restores_the_history() -> None:
    opened = prefilled(PROMPT)
    checkpoint = opened.capture(0)
    drafts(opened, 2)
    opened.commit([[3, 4]])
    assert checkpoint.processed_tokens == len(PROMPT)
    assert checkpoint.tensors["ids"].dtype == mx.int32
    restored = rows(checkpoint)
    assert history(restored) == PROMPT
    assert drafts(restored, 2) == drafts(prefilled(PROMPT), 2)


def test_a_checkpoint_in_an_open_round_leaves_the_pending_id_out() -> None:
    opened = prefilled(PROMPT)
    drafts(opened, 2)
    assert opened.capture(0).processed_tokens == len(PROMPT)


def test_a_checkpoint_of_other_settings_is_refused_by_name() -> None:
    checkpoint = prefilled(PROMPT).capture(0)
    with pytest.raises(DrafterError, match=r"ngram:.*max_ngram=3.*max_ngram=4"):
        rows(checkpoint, settings=NgramSettings(max_ngram=4))


@pytest.mark.parametrize(
    "change",
    [{"processed_tokens": 7}, {"tensors": {}}, {"tensors": {"ids": mx.array([1, 2])}}],
)
def test_a_checkpoint_of_another_length_is_refused(change: dict[str, Any]) -> None:
    checkpoint = evolve(prefilled(PROMPT).capture(0), **change)
    with pytest.raises(DrafterError, match=r"ids for \d processed tokens"):
        rows(checkpoint)


def test_drafts_may_come_from_a_rule_instead_of_a_lookup() -> None:
    def next_two(ids: Sequence[int]) -> list[int]:
        return [ids[-1] + 1, ids[-1] + 2]

    opened = NgramRows("rule", partial(RuleGuesser, next_two), [None])
    opened.prefill(mx.array([[1, 2]]))
    assert drafts(opened, 7) == [[8, 9]]
    opened.commit([[8, 20]])
    assert drafts(opened, 20, depth=1) == [[21]]
    restored = NgramRows("rule", partial(RuleGuesser, next_two), [opened.capture(0)])
    assert drafts(restored, 20) == [[21, 22]]


@given(IDS, st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=12))
def test_a_restored_row_follows_what_it_followed(
    prompt: list[int], story: list[tuple[int, int]]
) -> None:
    opened, pending = prefilled(prompt), 1
    for fresh, accepted in story:
        (draft,) = drafts(opened, pending)
        if draft:
            opened.commit([[*draft[:accepted], fresh]])
            pending = fresh
    restored = rows(opened.capture(0))
    for _ in range(2):  # an empty draft leaves the round open
        assert drafts(restored, pending) == drafts(opened, pending)
        restored = rows(opened.capture(0))


@pytest.mark.parametrize(
    "metadata",
    [{}, {"pending": "x", "state": ""}, {"pending": "1 2", "state": "0 0 0 0"},
     {"pending": "", "state": "99 4 0 0"}, {"pending": "", "state": "1 2"},
     {"pending": "", "state": "-1 0 0 0"}],
)  # fmt: skip
def test_a_checkpoint_with_a_broken_state_is_refused(metadata: dict[str, str]) -> None:
    checkpoint = evolve(prefilled(PROMPT).capture(0), metadata=metadata)
    with pytest.raises(DrafterError, match="make it anew"):
        rows(checkpoint)
