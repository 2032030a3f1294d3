"""Sources and drafters in a request: what they are told, and what a misbehaving one costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfill import Policy, Proposal
from mlxfill.model.target import Target
from mlxfill_testing import (
    ARCHITECTURES,
    ROUNDED,
    VOCAB,
    Guest,
    Script,
    ScriptedDrafter,
    ScriptedRows,
    ScriptedSource,
    engine_with,
    plain,
    plugged,
    shared_model,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PROMPT = [7, 30, 9, 30, 11, 4]
COUNT = 20
EXAMPLES = settings().max_examples


def truth(name: str = "llama") -> list[int]:
    return [*PROMPT, *plain(shared_model(name), PROMPT, COUNT).tokens]


# --- sources that misbehave ------------------------------------------------------------------


class Misbehaving(ScriptedSource):
    """Does wrong in the method named ``where``, from the third call on; else it is right."""

    where: str
    wrong: Callable[[], Any]
    calls = 0

    def _maybe(self, where: str) -> Any:
        if where != self.where:
            return None
        self.calls += 1
        return self.wrong() if self.calls > 2 else None

    def propose(self, view: Any) -> Any:
        return self._maybe("propose") or super().propose(view)

    def observe(self, ids: Sequence[int]) -> None:
        self._maybe("observe")
        super().observe(ids)

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        self._maybe("resolved")
        super().resolved(proposal, accepted)

    def near(self) -> bool:
        return bool(self._maybe("near"))


def raising(error: BaseException) -> Callable[[], Any]:
    def wrong() -> Any:
        raise error

    return wrong


def misbehaving(where: str, wrong: Callable[[], Any]) -> Guest:
    def make(request: Any) -> Misbehaving:
        source = Misbehaving(request=request, script=Script(truth(), 0.7), chance=0.5)
        source.where, source.wrong = where, wrong
        return source

    return Guest(name="naughty", sources=[make])


def lie(ids: Any) -> Callable[[], Any]:
    return lambda: Proposal(ids, Policy.VERIFY, "lie")


WRONG: dict[str, tuple[str, Callable[[], Any]]] = {
    "propose raises": ("propose", raising(RuntimeError("no"))),
    "observe raises": ("observe", raising(KeyError("no"))),
    "resolved raises": ("resolved", raising(ZeroDivisionError())),
    "near raises": ("near", raising(RecursionError("deep"))),
    "floats": ("propose", lie((1, 2.0))),
    "bools": ("propose", lie((True, False))),
    "negative": ("propose", lie((3, -1))),
    "beyond": ("propose", lie((3, VOCAB))),
    "a list": ("propose", lie([1, 2])),
    "a generator": ("propose", lambda: Proposal(iter((1, 2)), Policy.VERIFY, "x")),  # type: ignore[arg-type]
    "an array": ("propose", lambda: Proposal(mx.array([1, 2]), Policy.VERIFY, "x")),  # type: ignore[arg-type]
    "no proposal": ("propose", lambda: "what"),
}


@pytest.mark.parametrize("options", [{}, {"temperature": 0.9, "seed": 2}], ids=["greedy", "drawn"])
@pytest.mark.parametrize(("where", "wrong"), WRONG.values(), ids=WRONG)
def test_a_source_that_misbehaves_is_named_and_changes_nothing(
    where: str, wrong: Callable[[], Any], options: dict[str, Any]
) -> None:
    model = shared_model("llama")
    expected = plain(model, PROMPT, COUNT, **options)
    result = plugged(model, misbehaving(where, wrong), PROMPT, COUNT, **options)
    assert result.tokens == expected.tokens
    assert result.text == expected.text
    (fault,) = result.faults
    assert (fault.plugin, fault.where) == ("naughty", where)
    assert fault.message
    assert "\n" not in fault.message


def test_a_quarantine_lasts_one_request() -> None:
    model = shared_model("llama")
    with engine_with(model, misbehaving("propose", raising(RuntimeError("no")))) as engine:
        for _ in range(2):
            result = engine.generate(PROMPT, max_tokens=COUNT, eos_token_ids=())
            assert result.tokens == truth()[len(PROMPT) :]
            assert [fault.plugin for fault in result.faults] == ["naughty"]


def test_the_others_go_on_when_one_leaves() -> None:
    model = shared_model("llama")
    naughty = misbehaving("propose", raising(RuntimeError("no")))
    good = Guest.offering(truth(), 1.0)
    with engine_with(model, naughty, good) as engine:
        result = engine.generate(PROMPT, max_tokens=COUNT, eos_token_ids=())
    assert result.tokens == truth()[len(PROMPT) :]
    assert result.stats.spec["accepted"] > 0
    assert good.seated[0].seen == [*PROMPT, *result.tokens]


def test_a_hook_that_raises_costs_only_its_own_plugin() -> None:
    def broken(_: Any) -> Any:
        raise ValueError("no sources today")

    model = shared_model("llama")
    with engine_with(
        model, Guest(name="broken", sources=[broken]), Guest.offering(truth(), 1.0)
    ) as engine:
        result = engine.generate(PROMPT, max_tokens=COUNT, eos_token_ids=())
    assert result.tokens == truth()[len(PROMPT) :]
    assert [fault.plugin for fault in result.faults] == ["broken"]
    assert result.stats.spec["accepted"] > 0


@pytest.mark.parametrize("name", ["llama", "qwen3_5"])
def test_every_proposal_is_resolved_once_and_every_token_observed(name: str) -> None:
    model, whole = shared_model(name), truth(name)
    for accuracy in (0.0, 0.6, 1.0):
        for chance in (0.3, 1.0):
            guest = Guest.offering(whole, accuracy, chance=chance)
            result = plugged(model, guest, PROMPT, COUNT)
            (source,) = guest.seated
            assert [id(o.proposal) for o in source.outcomes] == [id(p) for p in source.offered]
            assert source.seen == [*PROMPT, *result.tokens]
            assert all(0 <= o.accepted <= len(o.proposal.ids) for o in source.outcomes)


def test_what_is_resolved_is_what_entered() -> None:
    """The ``accepted`` of every proposal counts the ids of it that stand in the output."""
    model, whole = shared_model("llama"), truth()

    class Noting(ScriptedSource):
        places: list[int]

        def resolved(self, proposal: Proposal, accepted: int) -> None:
            super().resolved(proposal, accepted)
            at = self.places[len(self.outcomes) - 1]
            right = 0
            for ours, theirs in zip(proposal.ids, whole[at:], strict=False):
                if ours != theirs:
                    break
                right += 1
            assert accepted <= right
            if accepted < min(right, 1):
                raise AssertionError((accepted, right))

        def propose(self, view: Any) -> Proposal | None:
            proposal = super().propose(view)
            if proposal is not None:
                self.places.append(view.length)
            return proposal

    def make(request: Any) -> Noting:
        source = Noting(request=request, script=Script(whole, 0.8, 3), chance=0.7)
        source.places = []
        return source

    assert plugged(model, Guest(sources=[make]), PROMPT, COUNT).faults == []


def test_config_order_decides_who_is_asked_first() -> None:
    model, whole = shared_model("llama"), truth()
    for first, second in (("one", "two"), ("two", "one")):
        guests = []
        for name in (first, second):
            script = Script(whole, 1.0)
            make: Any = lambda r, s=script, n=name: ScriptedSource(request=r, script=s, origin=n)  # noqa: E731
            guests.append(Guest(name=name, sources=[make]))
        with engine_with(model, *guests) as engine:
            result = engine.generate(PROMPT, max_tokens=COUNT, eos_token_ids=())
        assert set(result.origins) == {"sampled", first}


def test_a_source_that_says_near_is_asked_before_the_next_step() -> None:
    """``near`` makes the loop read the newest token first, so that an assert wastes no sample."""
    model = shared_model("llama")

    class Near(ScriptedSource):
        said = False

        def near(self) -> bool:
            return len(self.seen) - len(PROMPT) == 5

        def propose(self, view: Any) -> Proposal | None:
            if view.length - len(PROMPT) != 6:
                return None
            return Proposal((50, 51, 52), Policy.ASSERT, "near")

    guest = Guest(sources=[lambda r: Near(request=r, script=Script(PROMPT, 1.0))])
    with engine_with(model, guest, trusted=["guest"]) as engine:
        result = engine.generate(PROMPT, max_tokens=14, eos_token_ids=())
    assert result.tokens[6:9] == [50, 51, 52]
    assert result.stats.fill["wasted_samples"] == 0


# --- drafters: what they are told --------------------------------------------------------------


def fresh_aux_states(name: str, ids: Sequence[int], layers: tuple[int, ...]) -> mx.array:
    """Outputs of ``layers`` in one forward of all ``ids``."""
    with Target(shared_model(name)) as target:
        with target.taping() as tape:
            mx.eval(target.forward(mx.array([list(ids)]), target.new_cache()))
        return target.aux_states(tape, layers)


drafters = st.fixed_dictionaries(
    {
        "accuracy": st.sampled_from([0.0, 0.6, 1.0]),
        "chance": st.sampled_from([0.5, 1.0]),
        "prefill_mode": st.sampled_from(["tail-split", "full"]),
        "on_device": st.booleans(),
    }
)
request_options = st.sampled_from(
    [{}, {"prefill_step_size": 2}, {"temperature": 0.8, "seed": 4, "repetition_penalty": 1.2}]
)


@settings(max_examples=max(1, EXAMPLES // 5))
@given(
    name=st.sampled_from(sorted(set(ARCHITECTURES) - ROUNDED)),
    drafter=drafters,
    source=st.sampled_from([None, 0.0, 0.7, 1.0]),
    options=request_options,
)
def test_a_drafter_is_told_every_token_with_the_states_of_a_fresh_prefill(
    name: str, drafter: dict[str, Any], source: float | None, options: dict[str, Any]
) -> None:
    """Its own rounds, plain steps, windows of a source: tokens and states arrive in step."""
    model, layers = shared_model(name), (1, 0)
    expected = plain(model, PROMPT, COUNT, **options).tokens
    whole = [*PROMPT, *expected]
    guest = Guest.drafting(whole, aux_layers=layers, **drafter)
    if source is not None:
        script = Script(whole, source, 7)
        guest.sources = [lambda r: ScriptedSource(request=r, script=script, chance=0.4)]
    result = plugged(model, guest, PROMPT, COUNT, **options)
    assert result.tokens == expected
    assert result.faults == []
    assert guest.drafter is not None
    (rows,) = guest.drafter.opened
    assert rows.closed
    assert rows.known == whole[: len(rows.known)]
    aux_states = mx.concatenate(rows.aux_states, axis=1)
    assert aux_states.shape[1] == len(rows.known)
    assert mx.array_equal(aux_states, fresh_aux_states(name, rows.known, layers))


def test_asserted_spans_reach_the_drafter_with_their_states() -> None:
    model = shared_model("qwen3_5")

    class Once(ScriptedSource):
        def propose(self, view: Any) -> Proposal | None:
            at = view.length - len(PROMPT)
            return Proposal((50, 51, 52), Policy.ASSERT, "fill") if at in {3, 8} else None

    for chunk in (0, 2):
        guest = Guest.drafting(truth("qwen3_5"), 0.5, aux_layers=(0,))
        guest.sources = [lambda r: Once(request=r, script=Script(PROMPT, 1.0))]
        with engine_with(model, guest, trusted=["guest"]) as engine:
            result = engine.generate(PROMPT, max_tokens=COUNT, eos_token_ids=(), append_chunk=chunk)
        assert result.faults == []
        assert result.stats.fill["events"] > 0
        assert guest.drafter is not None
        (rows,) = guest.drafter.opened
        assert rows.known == [*PROMPT, *result.tokens][: len(rows.known)]
        aux_states = mx.concatenate(rows.aux_states, axis=1)
        assert mx.array_equal(aux_states, fresh_aux_states("qwen3_5", rows.known, (0,)))


def test_the_depth_that_was_asked_for_is_the_most() -> None:
    model = shared_model("llama")
    for depth in (1, 3):
        guest = Guest.drafting(truth(), 1.0)
        with engine_with(model, guest, num_draft_tokens=depth) as engine:
            result = engine.generate(PROMPT, max_tokens=COUNT, eos_token_ids=())
        assert max(result.stats.rounds) == depth + 1
        assert len(result.stats.spec["drafted_by_position"]) == depth


def test_a_depth_beyond_all_reason_costs_no_more_than_the_deepest() -> None:
    guest = Guest.drafting(truth(), 1.0)
    with engine_with(shared_model("llama"), guest, num_draft_tokens=10**20) as engine:
        spec = engine.generate(PROMPT, max_tokens=COUNT, eos_token_ids=()).stats.spec
    assert len(spec["drafted_by_position"]) == 1024
    assert spec["drafted"] == spec["accepted"] > 0


# --- drafters that misbehave -------------------------------------------------------------------


class Lying(ScriptedDrafter):
    """Its rows do wrong in the method named ``where``, from the second call on."""

    where: str
    wrong: Callable[[], Any]

    def open(self, target: Any, sampling: Any, checkpoints: Any) -> Any:
        if self.where == "open":
            return self.wrong()
        super().open(target, sampling, checkpoints)
        rows = self.opened[-1]
        inner, calls = getattr(rows, self.where), [0]

        def method(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            return self.wrong() if calls[0] > self.patience else inner(*args, **kwargs)

        setattr(rows, self.where, method)
        return rows

    patience = 1


def lying(where: str, wrong: Callable[[], Any], patience: int = 1) -> Guest:
    drafter = Lying(script=Script(truth(), 0.7), aux_layers=(0,))
    drafter.where, drafter.wrong = where, wrong
    drafter.patience = patience
    return Guest(name="naughty", drafter=drafter)


DRAFTER_WRONG: dict[str, tuple[str, Callable[[], Any], int]] = {
    "open raises": ("open", raising(RuntimeError("no\nrows")), 0),
    "prefill raises": ("prefill", raising(RuntimeError("no")), 0),
    "consume raises": ("consume", raising(RuntimeError("no")), 0),
    "draft raises": ("draft", raising(RuntimeError("no")), 1),
    "commit raises": ("commit", raising(RuntimeError("no")), 1),
    "floats": ("draft", lambda: [[1.0, 2.0]], 1),
    "bools": ("draft", lambda: [[True]], 1),
    "negative": ("draft", lambda: [[-1, 3]], 1),
    "beyond": ("draft", lambda: [[3, VOCAB]], 1),
    "no rows": ("draft", list, 1),
    "two rows": ("draft", lambda: [[1], [2]], 1),
    "a number": ("draft", lambda: 7, 1),
    "flat": ("draft", lambda: [1], 1),
    "nothing": ("draft", lambda: None, 1),
    "a flat array": ("draft", lambda: mx.array([1, 2]), 1),
    "two rows in an array": ("draft", lambda: mx.array([[1, 2], [3, 4]]), 1),
    "too long an array": ("draft", lambda: mx.zeros((1, 99), mx.uint32), 1),
    "an array of floats": ("draft", lambda: mx.array([[1.0, 2.0]]), 1),
    "an array of bools": ("draft", lambda: mx.array([[True]]), 1),
}


@pytest.mark.parametrize("layer", [4, 99, -1])
def test_a_drafter_that_reads_a_layer_that_is_not_there_is_named(layer: int) -> None:
    model = shared_model("llama")
    guest = Guest.drafting(truth(), 1.0, aux_layers=(0, layer))
    result = plugged(model, guest, PROMPT, COUNT)
    assert result.tokens == truth()[len(PROMPT) :]
    (fault,) = result.faults
    assert (
        fault.message
        == f"ValueError: wants the output of layer {layer}; the target has layers 0 to 3"
    )


@pytest.mark.parametrize("name", ["gemma3n", "deepseek_v41", "iquestloopcoder"])
def test_a_drafter_that_reads_a_layer_of_several_states_or_none_is_named(name: str) -> None:
    """The layers of these files hand on several states at once, or are never called themselves."""
    whole = truth(name)
    guest = Guest.drafting(whole, 1.0, aux_layers=(1, 0))
    result = plugged(shared_model(name), guest, PROMPT, COUNT)
    assert result.tokens == whole[len(PROMPT) :]
    (fault,) = result.faults
    assert fault.message == "ValueError: wants the output of layer 1; it gives no [B, L, H] array"


@pytest.mark.parametrize(
    "options",
    [{}, {"repetition_penalty": 1.3, "temperature": 0.7, "seed": 3}],
    ids=["fast", "walk"],
)
@pytest.mark.parametrize(("where", "wrong", "patience"), DRAFTER_WRONG.values(), ids=DRAFTER_WRONG)
def test_a_drafter_that_misbehaves_is_named_and_changes_nothing(
    where: str, wrong: Callable[[], Any], patience: int, options: dict[str, Any]
) -> None:
    model = shared_model("llama")
    expected = plain(model, PROMPT, COUNT, **options)
    guest = lying(where, wrong, patience)
    result = plugged(model, guest, PROMPT, COUNT, **options)
    assert result.tokens == expected.tokens
    assert all(type(token) is int for token in result.tokens)
    assert result.text == expected.text
    (fault,) = result.faults
    assert (fault.plugin, fault.where) == ("naughty", where)
    assert "\n" not in fault.message
    assert guest.drafter is not None
    assert all(rows.closed for rows in guest.drafter.opened), "rows hold memory until closed"


def test_a_row_whose_aux_states_cannot_be_read_is_closed() -> None:
    model = shared_model("llama")
    guest = Guest.drafting(truth(), 1.0)
    assert guest.drafter is not None
    guest.drafter.aux_layers = cast("Any", 3)
    result = plugged(model, guest, PROMPT, COUNT)
    assert result.tokens == truth()[len(PROMPT) :]
    assert [(fault.plugin, fault.where) for fault in result.faults] == [("guest", "open")]
    assert [rows.closed for rows in guest.drafter.opened] == [True]


def test_ctrl_c_while_a_row_is_opened_closes_it() -> None:
    class Interrupted:
        def __iter__(self) -> Iterator[int]:
            raise KeyboardInterrupt

    guest = Guest.drafting(truth(), 1.0)
    assert guest.drafter is not None
    guest.drafter.aux_layers = cast("Any", Interrupted())
    with engine_with(shared_model("llama"), guest) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.stream(PROMPT)
        assert [rows.closed for rows in guest.drafter.opened] == [True]


def test_a_drafter_that_cannot_close_is_reported() -> None:
    model = shared_model("llama")
    guest = lying("close", raising(RuntimeError("stuck")), 0)
    result = plugged(model, guest, PROMPT, COUNT)
    assert result.tokens == truth()[len(PROMPT) :]
    assert [fault.where for fault in result.faults] == ["close"]


def test_drafts_of_an_array_beyond_the_vocabulary_are_never_accepted() -> None:
    """Ids on the device cannot be looked at in time: they are judged like any wrong ones."""
    model = shared_model("llama")
    guest = lying("draft", lambda: mx.array([[VOCAB + 9, -5]]), 0)
    result = plugged(model, guest, PROMPT, COUNT)
    assert result.tokens == truth()[len(PROMPT) :]
    assert max(result.tokens) < VOCAB


def test_a_drafter_with_nothing_to_say_is_asked_less_often() -> None:
    model = shared_model("llama")
    guest = lying("draft", lambda: [[]], 0)
    result = plugged(model, guest, PROMPT, COUNT)
    assert result.faults == []
    assert result.tokens == truth()[len(PROMPT) :]
    assert result.stats.spec["windows"] == 0
    assert isinstance(guest.drafter, Lying)


def test_rows_are_opened_for_each_request_and_closed_when_it_is_left() -> None:
    model = shared_model("llama")
    guest = Guest.drafting(truth(), 1.0)
    assert guest.drafter is not None
    with engine_with(model, guest) as engine:
        for _ in range(2):
            engine.generate(PROMPT, max_tokens=4, eos_token_ids=())
        run = engine.stream(PROMPT, max_tokens=9, eos_token_ids=())
        next(run)
        run.close()
        assert [rows.closed for rows in guest.drafter.opened] == [True] * 3
        assert all(isinstance(rows, ScriptedRows) for rows in guest.drafter.opened)
        assert not guest.drafter.closed
    assert guest.drafter.closed
