"""Where a reply stands in its grammar: what is forced, what may follow, going back."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfill import InputError, Schema
from mlxfill_constrain import Vocabulary
from mlxfill_constrain.walk import Walk

PERSON = Schema(
    "json",
    '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 5},'
    ' "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 2}},'
    ' "required": ["name", "tags"], "additionalProperties": false}',
)


@pytest.fixture(scope="session")
def vocabulary(tokenizer: Any) -> Vocabulary:
    return Vocabulary.of(tokenizer, frozenset(tokenizer.eos_token_ids))


def walk_of(vocabulary: Vocabulary, schema: Schema = PERSON) -> Walk:
    return Walk(vocabulary.matcher(schema, "spaced"), vocabulary.spelled)


def state(walk: Walk) -> Any:
    forced, finished = walk.forced, walk.finished
    return forced, walk.accepting, finished, () if finished else tuple(walk.allowed().nonzero()[0])


def ways(walk: Walk) -> list[int]:
    """Ids that may come next."""
    return [walk.forced[0]] if walk.forced else [int(i) for i in walk.allowed().nonzero()[0]]


def wander(walk: Walk, rng: random.Random, count: int) -> list[int]:
    taken: list[int] = []
    while len(taken) < count and not walk.finished:
        taken.append(rng.choice(ways(walk)))
        walk.take(taken[-1])
    return taken


@given(seed=st.integers(0, 10_000), steps=st.integers(0, 30), share=st.floats(0, 1))
def test_going_back_leaves_no_trace(
    vocabulary: Vocabulary, seed: int, steps: int, share: float
) -> None:
    rng, walk = random.Random(seed), walk_of(vocabulary)
    ids = wander(walk, rng, steps)
    end = state(walk)
    keep = round(share * len(ids))
    walk.back(len(ids) - keep)
    fresh = walk_of(vocabulary)
    for token in ids[:keep]:
        fresh.take(token)
    assert (walk.taken, state(walk)) == (keep, state(fresh))
    for token in ids[keep:]:
        walk.take(token)
    assert state(walk) == end


@given(seed=st.integers(0, 10_000))
def test_forced_ids_stay_what_they_were_until_they_are_taken(
    vocabulary: Vocabulary, seed: int
) -> None:
    rng, walk, spans = random.Random(seed), walk_of(vocabulary), 0
    while not walk.finished and walk.taken < 40:
        if forced := walk.forced:
            spans += 1
            for at, token in enumerate(forced):
                assert walk.forced == forced[at:]
                walk.take(token)
        else:
            walk.take(rng.choice(ways(walk)))
    assert spans >= 1


def test_forced_text_is_in_canonical_tokens(vocabulary: Vocabulary, tokenizer: Any) -> None:
    walk = walk_of(vocabulary)
    assert tokenizer.decode(walk.forced) == '{"name":'
    assert list(walk.forced) == tokenizer.encode('{"name":', add_special_tokens=False)


@pytest.mark.parametrize("wrong", ["x", "}"])
def test_an_illegal_id_is_refused(vocabulary: Vocabulary, tokenizer: Any, wrong: str) -> None:
    (token,) = tokenizer.encode(wrong, add_special_tokens=False)
    with pytest.raises(InputError, match=f"schema does not allow token {token} at 0 of the reply"):
        walk_of(vocabulary).take(token)


def test_another_tokenization_of_forced_text_is_illegal_too(
    vocabulary: Vocabulary, tokenizer: Any
) -> None:
    walk = walk_of(vocabulary)
    (brace,) = tokenizer.encode("{", add_special_tokens=False)
    assert walk.forced[0] != brace
    with pytest.raises(InputError, match="does not allow"):
        walk.take(brace)


def test_a_compiled_grammar_is_shared_and_its_walks_are_not(vocabulary: Vocabulary) -> None:
    one, other = walk_of(vocabulary), walk_of(vocabulary)
    one.take(one.forced[0])
    assert (one.taken, other.taken) == (1, 0)
    assert other.forced[1:] == one.forced


def test_a_tokenizer_is_read_once(tokenizer: Any) -> None:
    eos = frozenset(tokenizer.eos_token_ids)
    assert Vocabulary.of(tokenizer, eos) is Vocabulary.of(tokenizer, eos)


def test_vocabularies_are_kept_for_the_ends_that_were_asked_for_last(tokenizer: Any) -> None:
    """A large one takes a hundred megabytes, and every request may name other ends."""
    usual = frozenset(tokenizer.eos_token_ids)
    before = Vocabulary.of(tokenizer, usual)
    assert Vocabulary.of(tokenizer, usual) is before
    made = {end: Vocabulary.of(tokenizer, frozenset({end})) for end in range(20, 24)}
    assert Vocabulary.of(tokenizer, frozenset({23})) is made[23]
    assert Vocabulary.of(tokenizer, usual) is not before
