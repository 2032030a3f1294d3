"""A row's cache is what a prefill of the same tokens builds, whatever happened on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from mlxfill import DraftCheckpoint, DrafterError, Sampling
from mlxfill.model.target import Target
from mlxfill.sampling import Chooser
from mlxfill_spec_qwen_mtp.chain import CHUNK, Head
from mlxfill_spec_qwen_mtp.rows import MtpRows
from mlxfill_testing import VOCAB, shared_model

if TYPE_CHECKING:
    from mlxfill_spec_qwen_mtp.head import MtpHead
    from mlxfill_spec_qwen_mtp.settings import HeldRows

PROMPT = [7, 21, 3, 40, 55, 3, 12]
LAYERS: dict[str, dict[str, Any]] = {
    "dense": {},
    "experts": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    },
    "two layers": {"mtp_num_hidden_layers": 2},
}
ROUND = st.tuples(st.just("round"), st.integers(1, 4), st.integers(0, 4))
CONSUME = st.tuples(st.just("consume"), st.integers(1, 5), st.just(0))
STORIES = st.lists(st.one_of(ROUND, CONSUME), min_size=1, max_size=7)
MakeRows = Callable[..., MtpRows]


@pytest.fixture
def rows_of(make_head: Callable[..., MtpHead]) -> Iterator[MakeRows]:
    """Rows of a random head on a random target."""
    heads: dict[str, MtpHead] = {}
    with Target(shared_model("qwen3_5")) as target:

        def make(
            layer: str = "dense",
            *checkpoints: DraftCheckpoint | None,
            held_rows: HeldRows = "true",
            vocabulary: tuple[int, ...] | None = None,
            **sampling: Any,
        ) -> MtpRows:
            if layer not in heads:
                heads[layer] = make_head(0.5, **LAYERS[layer])
            each = checkpoints or (None,)
            rows = MtpRows(
                "test",
                Head(heads[layer], target, vocabulary),
                aux_layers=(target.layer_count - 1,),
                most_drafts=4,
                held_rows=held_rows,
            )
            rows.append([Chooser(Sampling(seed=5, **sampling))] * len(each), each)
            return rows

        yield make


def ids(tokens: Sequence[int]) -> mx.array:
    return mx.array([list(tokens)])


def states(tokens: Sequence[int], start: int) -> mx.array:
    """Hidden states ``[1, L, H]`` that depend on token and position, like a target's."""
    parts = [
        mx.random.normal((64,), key=mx.random.key(token * 1000 + start + at))
        for at, token in enumerate(tokens)
    ]
    return mx.stack(parts)[None] if parts else mx.zeros((1, 0, 64))


class Session:
    """One row as the engine drives it: tokens processed, and the pending one."""

    def __init__(self, rows: MtpRows, prompt: Sequence[int], pending: int = 33) -> None:
        self.rows = rows
        self.tokens = [*prompt, pending]
        self.fresh = 0
        if prompt:
            rows.prefill(ids(prompt), states(prompt, 0))

    def new(self) -> int:
        self.fresh += 1
        return (self.fresh * 29 + 11) % VOCAB

    def round(self, depth: int, accepted: int) -> list[int]:
        """Draft; the first ``accepted`` ids (at most all) are taken, then comes another one."""
        at = len(self.tokens)
        drafted = self.rows.draft([self.tokens[-1]], depth, [at])
        assert drafted.shape == (1, depth)
        drafts: Any = drafted[0].tolist()
        entered = [*drafts[:accepted], self.new()]
        window = [self.tokens[-1], *entered[:-1]]
        self.rows.commit([entered], states(window, at - 1))
        self.tokens += entered
        return list(drafts)

    def consume(self, count: int) -> None:
        """Others choose ``count`` tokens; the last of them is pending."""
        at = len(self.tokens)
        self.tokens += [self.new() for _ in range(count)]
        fresh = self.tokens[at - 1 : -1]
        self.rows.consume(ids(fresh), [count], states(fresh, at - 1))

    def play(self, story: list[tuple[str, int, int]]) -> None:
        for kind, size, accepted in story:
            if kind == "round":
                self.round(size, accepted)
            else:
                self.consume(size)


def same(a: DraftCheckpoint, b: DraftCheckpoint) -> bool:
    assert a.tensors.keys() == b.tensors.keys()
    equal = all(mx.array_equal(a.tensors[name], b.tensors[name]) for name in a.tensors)
    return equal and a.processed_tokens == b.processed_tokens


@pytest.mark.parametrize("layer", ["dense", "experts"])
@given(story=STORIES, length=st.integers(1, 12))
def test_any_story_leaves_the_cache_of_a_prefill(
    rows_of: MakeRows, layer: str, story: list[tuple[str, int, int]], length: int
) -> None:
    session = Session(rows_of(layer), (PROMPT * 2)[:length])
    session.play(story)
    prefilled = Session(rows_of(layer), session.tokens[:-1])
    assert same(session.rows.capture(0), prefilled.rows.capture(0))


@given(story=STORIES, temperature=st.sampled_from([0.0, 1.0]))
def test_drafts_do_not_depend_on_the_story(
    rows_of: MakeRows, story: list[tuple[str, int, int]], temperature: float
) -> None:
    session = Session(rows_of(temperature=temperature), PROMPT)
    session.play(story)
    alone = Session(rows_of(temperature=temperature), session.tokens[:-1], session.tokens[-1])
    assert session.round(4, 0) == alone.round(4, 0)


def test_row_p_pairs_the_next_token_with_the_state_at_p(rows_of: MakeRows) -> None:
    rows = rows_of()
    Session(rows, PROMPT)
    checkpoint = rows.capture(0)
    head = rows._head
    cache = head.module.new_cache()
    head.step(ids(PROMPT[1:]), states(PROMPT, 0)[:, :-1], cache)
    keys, values = cache[0].keys_and_values()
    assert mx.array_equal(checkpoint.tensors["keys.0"], keys)
    assert mx.array_equal(checkpoint.tensors["values.0"], values)
    assert mx.array_equal(checkpoint.tensors["state"], states(PROMPT, 0)[:, -1:])


def test_a_draft_chains_the_heads_own_states(rows_of: MakeRows) -> None:
    drafts = Session(rows_of("two layers"), PROMPT, 33).round(3, 0)
    head = rows_of("two layers")._head
    cache, tokens, hidden = head.module.new_cache(), ids([*PROMPT[1:], 33]), states(PROMPT, 0)
    expected = []
    for _ in range(3):
        hidden = head.step(tokens, hidden, cache)[:, -1:]
        expected.append(int(mx.argmax(head.logits(hidden)[0])))
        tokens = ids(expected[-1:])
    assert drafts == expected


@pytest.mark.parametrize("accepted", [0, 1, 2, 3])
def test_rows_of_accepted_drafts_are_replaced_or_kept_as_set(
    rows_of: MakeRows, accepted: int
) -> None:
    true, chained = (Session(rows_of(held_rows=held), PROMPT) for held in ("true", "chained"))
    assert true.round(3, accepted) == chained.round(3, accepted)
    assert true.tokens == chained.tokens
    before = [session.rows._chains[0].cache[0].offset for session in (true, chained)]
    assert before == [len(PROMPT), len(PROMPT) + min(accepted, 2)]
    ours, theirs = true.rows.capture(0), chained.rows.capture(0)
    assert ours.tensors["keys.0"].shape == theirs.tensors["keys.0"].shape
    assert same(ours, theirs) == (accepted == 0)


def test_a_long_wait_is_forwarded_in_pieces(rows_of: MakeRows) -> None:
    session = Session(rows_of(), PROMPT)
    for _ in range(CHUNK // 100 + 1):
        session.consume(100)
    assert session.rows._chains[0].cache[0].offset >= CHUNK
    prefilled = Session(rows_of(), session.tokens[:-1])
    assert same(session.rows.capture(0), prefilled.rows.capture(0))


def test_no_more_drafts_than_the_head_was_trained_for(rows_of: MakeRows) -> None:
    rows = rows_of()
    Session(rows, PROMPT)
    assert rows.draft([33], 9, [8]).shape == (1, 4)


def test_no_drafts_asked_changes_nothing(rows_of: MakeRows) -> None:
    rows = rows_of()
    Session(rows, PROMPT)
    assert rows.draft([33], 0, [8]).shape == (1, 0)
    assert same(rows.capture(0), Session(rows_of(), PROMPT).rows.capture(0))


def test_a_draft_vocabulary_holds(rows_of: MakeRows) -> None:
    vocabulary = (3, 7, 20, 21, 50)
    for temperature in (0.0, 1.0, 3.0):
        session = Session(rows_of(vocabulary=vocabulary, temperature=temperature), PROMPT)
        drawn = [session.round(4, 1) for _ in range(6)]
        assert {token for each in drawn for token in each} <= set(vocabulary)
    whole = Session(rows_of(vocabulary=tuple(range(VOCAB)), temperature=1.0), PROMPT)
    assert whole.round(4, 0) == Session(rows_of(temperature=1.0), PROMPT).round(4, 0)


@pytest.mark.parametrize("call", ["prefill", "consume", "commit", "draft"])
def test_tokens_without_states_are_refused(rows_of: MakeRows, call: str) -> None:
    rows = rows_of()
    calls: dict[str, Callable[[], object]] = {
        "prefill": lambda: rows.prefill(ids(PROMPT)),
        "consume": lambda: rows.consume(ids(PROMPT), [3]),
        "commit": lambda: rows.commit([[4]]),
        "draft": lambda: rows.draft([4], 2, [1]),
    }
    with pytest.raises(DrafterError, match="MTP head"):
        calls[call]()


# --- several rows --------------------------------------------------------------------------


def test_rows_accept_raggedly_and_are_what_they_would_be_alone(rows_of: MakeRows) -> None:
    prompts = [PROMPT, PROMPT[::-1], [9] * len(PROMPT)]
    together = rows_of("dense", None, None, None)
    together.prefill(mx.array(prompts), mx.concatenate([states(p, 0) for p in prompts]))
    alone = [Session(rows_of(), prompt) for prompt in prompts]
    for accepted in ([0, 1, 2], [3, 0, 1], [2, 3, 0]):
        before = [list(session.tokens) for session in alone]
        drafted = together.draft([b[-1] for b in before], 3, [len(b) for b in before])
        expected = [session.round(3, n) for session, n in zip(alone, accepted, strict=True)]
        assert drafted.tolist() == expected
        entered = [s.tokens[len(b) :] for s, b in zip(alone, before, strict=True)]
        padded = [
            states([*([b[-1], *new[:-1]]), *([0] * (4 - len(new)))], len(b) - 1)
            for b, new in zip(before, entered, strict=True)
        ]
        together.commit(entered, mx.concatenate(padded))
    together.keep([2, 0])
    assert together.row_count == 2
    assert [same(together.capture(i), alone[j].rows.capture(0)) for i, j in ((0, 2), (1, 0))]


# --- checkpoints -----------------------------------------------------------------------------


@pytest.mark.parametrize("layer", LAYERS)
def test_a_restored_row_goes_on_as_if_nothing_had_happened(rows_of: MakeRows, layer: str) -> None:
    session = Session(rows_of(layer), PROMPT)
    session.play([("round", 3, 1), ("consume", 2, 0), ("round", 3, 3)])
    checkpoint = session.rows.capture(0)
    kept = {name: array.tolist() for name, array in checkpoint.tensors.items()}
    at, fresh = len(session.tokens), session.fresh
    expected = [session.round(3, 2), session.round(3, 0)]
    for _ in range(2):
        other = Session(rows_of(layer, checkpoint), [])
        other.tokens, other.fresh = session.tokens[:at], fresh
        assert [other.round(3, 2), other.round(3, 0)] == expected
    assert {name: array.tolist() for name, array in checkpoint.tensors.items()} == kept


@pytest.mark.parametrize("length", [0, 1])
def test_short_rows_have_checkpoints_too(rows_of: MakeRows, length: int) -> None:
    prompt = PROMPT[:length]
    session = Session(rows_of(), prompt)
    checkpoint = session.rows.capture(0)
    assert checkpoint.processed_tokens == length
    other = Session(rows_of("dense", checkpoint), [])
    assert same(other.rows.capture(0), checkpoint)
    if length:
        other.tokens = [*prompt, 33]
        assert other.round(3, 0) == session.round(3, 0)


def spoilt(checkpoint: DraftCheckpoint) -> list[tuple[DraftCheckpoint, str]]:
    tensors = dict(checkpoint.tensors)
    no_state = {name: array for name, array in tensors.items() if name != "state"}
    no_keys = {name: array for name, array in tensors.items() if name != "keys.0"}
    return [
        (evolve(checkpoint, namespace="qwen-mtp:other"), "'qwen-mtp:other', this one is 'test'"),
        (evolve(checkpoint, processed_tokens=3), "holds 6 rows for 3 processed tokens"),
        (evolve(checkpoint, tensors=no_state), "holds no state"),
        (evolve(checkpoint, tensors=no_keys), "holds 0 rows for 7 processed tokens"),
    ]


@pytest.mark.parametrize("at", range(4))
def test_a_foreign_or_broken_checkpoint_is_refused(rows_of: MakeRows, at: int) -> None:
    checkpoint, message = spoilt(Session(rows_of(), PROMPT).rows.capture(0))[at]
    with pytest.raises(DrafterError, match=r".") as caught:
        rows_of("dense", checkpoint)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
