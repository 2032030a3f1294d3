"""The trace: one record for each proposal, and caches that are checked around every window."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from full_disk import full_after
from mlxfill import InputError, Policy, RowScheduler
from mlxfill.forward.runner import TargetRunner
from mlxfill.policy.cost import CostCurve
from mlxfill.rewind.window import CacheWindow
from mlxfill_testing import (
    ARCHITECTURES,
    Guest,
    Script,
    ScriptedDrafter,
    ScriptedSource,
    engine_with,
    shared_model,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT = [5, 9, 14, 21, 7, 30, 11, 2]
LENGTH = 24
OPTIONS: dict[str, Any] = {"max_tokens": LENGTH, "eos_token_ids": []}


@cache
def session(name: str = "llama") -> list[int]:
    """Prompt and what plain decoding writes."""
    with engine_with(shared_model(name)) as engine:
        return PROMPT + engine.generate(PROMPT, **OPTIONS).tokens


def source(
    accuracy: float, *, policy: Policy = Policy.VERIFY, name: str = "llama", longest: int = 8
) -> Guest:
    script = Script(session(name), accuracy)
    return Guest(
        sources=[
            lambda request: ScriptedSource(
                request=request, script=script, policy=policy, longest=longest
            )
        ]
    )


def drafter(accuracy: float, name: str = "llama") -> Guest:
    return Guest(name="drafting", drafter=ScriptedDrafter(script=Script(session(name), accuracy)))


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Switch the trace on and read it: all records, or those of one kind."""
    session()  # a request of its own, the first time
    path = tmp_path / "trace.jsonl"
    monkeypatch.setenv("MLXFILL_TRACE", str(path))

    def read(kind: str | None = None) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [r for r in records if kind in (None, r["kind"])]

    return read


def generated(*guests: Guest, name: str = "llama", **options: Any) -> Any:
    with engine_with(shared_model(name), *guests, trusted=["guest"], **options) as engine:
        return engine.generate(PROMPT, **OPTIONS)


# --- records -----------------------------------------------------------------------


def test_each_proposal_is_one_record(trace: Any) -> None:
    guest = source(0.7)
    result = generated(guest)
    records = trace("proposal")
    assert len(records) == len(guest.seated[0].outcomes) == result.stats.spec["offers"]
    for record, outcome in zip(records, guest.seated[0].outcomes, strict=True):
        assert record["proposed"] == list(outcome.proposal.ids)[: len(record["proposed"])]
        assert record["accepted"] == outcome.accepted
        assert (record["plugin"], record["origin"]) == ("guest", "scripted")
        assert record["policy"] == "verify"
        assert record["time"] > 0


def test_a_record_says_what_the_model_wrote_instead(trace: Any) -> None:
    generated(source(0.7))
    truth, missed = session(), 0
    for record in trace("proposal"):
        start, accepted = record["position"], record["accepted"]
        assert record["generated"] == start - len(PROMPT)
        assert record["proposed"][:accepted] == truth[start : start + accepted]
        assert record["judged"] - accepted == (record["mismatch"] is not None)
        if record["mismatch"]:
            missed += 1
            mismatch = record["mismatch"]
            assert mismatch["position"] == start + accepted
            assert mismatch["proposed"]["id"] == record["proposed"][accepted]
            assert mismatch["model"]["id"] == truth[start + accepted]
            assert mismatch["model"]["text"] == text(truth[start + accepted])
    assert missed > 2


def text(token: int) -> str:
    from mlxfill_testing import tiny_tokenizer

    decoded: str = tiny_tokenizer().decode([token])
    return decoded


def test_where_windows_do_not_pay_only_the_first_id_is_judged(trace: Any) -> None:
    generated(source(0.7), gate=True, curve=CostCurve.linear())
    records = trace("proposal")
    judged = {record["judged"] for record in records[:-1]}
    assert judged == {1}
    truth = session()
    for record in records[:-1]:
        right = record["proposed"][0] == truth[record["position"]]
        assert record["accepted"] == right
        assert (record["mismatch"] is None) == right


def test_an_assert_is_not_judged(trace: Any) -> None:
    generated(source(0.5, policy=Policy.ASSERT))
    for record in trace("proposal"):
        assert record["policy"] == "assert"
        assert record["judged"] == 0
        assert record["accepted"] == len(record["proposed"])
        assert record["mismatch"] is None


def test_drafts_are_proposals_too(trace: Any) -> None:
    result = generated(drafter(0.7))
    records = trace("proposal")
    assert result.stats.spec["drafted"] == sum(len(record["proposed"]) for record in records)
    assert result.stats.spec["accepted"] == sum(record["accepted"] for record in records)
    assert {(record["plugin"], record["origin"]) for record in records} == {("drafting", "draft")}
    truth = session()
    for record in records:
        if record["mismatch"]:
            assert record["mismatch"]["model"]["id"] == truth[record["mismatch"]["position"]]


def test_an_end_inside_a_proposal_is_the_models_own_choice(trace: Any) -> None:
    truth = session()
    first = next(i for i in range(len(PROMPT) + 6, len(truth)) if truth[i] not in truth[:i])
    guest = source(1.0)
    with engine_with(shared_model("llama"), guest) as engine:
        engine.generate(PROMPT, max_tokens=LENGTH, eos_token_ids=[truth[first]])
    last = trace("proposal")[-1]
    assert last["position"] + len(last["proposed"]) <= first


def test_requests_have_names_of_their_own_and_a_beginning_and_an_end(trace: Any) -> None:
    generated(source(0.7))
    generated(source(0.7))
    records = trace()
    names = list(dict.fromkeys(record["request"] for record in records))
    assert len(names) == 2
    for name in names:
        kinds = [record["kind"] for record in records if record["request"] == name]
        assert (kinds[0], kinds[-1]) == ("request", "finish")
        assert set(kinds[1:-1]) == {"proposal", "round"}


def test_rounds_add_up_to_the_caches(trace: Any) -> None:
    result = generated(source(0.7), drafter(0.7))
    rounds = trace("round")
    assert sum(each["drafted"] for each in rounds) == result.stats.spec["drafted"]
    assert sum(each["accepted"] for each in rounds) == result.stats.spec["accepted"]
    for before, after in pairwise(rounds):
        assert after["held"] >= before["held"] + before["known"] + before["accepted"]


def test_plugins_are_told_of_rounds_only_while_a_trace_runs(
    trace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced, quiet = source(0.7), source(0.7)
    generated(traced)
    monkeypatch.delenv("MLXFILL_TRACE")
    generated(quiet)
    assert {event.kind for event in traced.events} == {"request", "round", "proposal", "finish"}
    assert [event.kind for event in quiet.events] == ["request", "finish"]
    written = [{k: r[k] for k in r if k not in ("time", "request", "kind")} for r in trace()]
    assert [json.loads(json.dumps(event.data)) for event in traced.events] == written


def test_plugins_are_told_of_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLXFILL_TRACE", raising=False)
    guest = source(1.0)
    monkeypatch.setattr(ScriptedSource, "propose", lambda *_: 1 / 0)
    result = generated(guest)
    (event,) = [event for event in guest.events if event.kind == "fault"]
    assert event.data["message"] == result.faults[0].message
    assert event.data["message"].startswith("ZeroDivisionError: division by zero (test_trace.py, ")


def test_nothing_is_watched_without_a_trace() -> None:
    with engine_with(shared_model("llama"), source(0.7)) as engine:
        run = engine.stream(PROMPT, **OPTIONS)
        assert type(run.state.forwarder) is TargetRunner
        assert (run.state.session.on_proposal, run.state.session.on_drafts) == (None, None)


def test_the_text_is_the_same_with_a_trace(trace: Any) -> None:
    assert generated(source(0.7), drafter(0.5)).tokens == session()[len(PROMPT) :]
    assert trace("fault") == []


def test_a_file_that_cannot_be_written_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLXFILL_TRACE", str(tmp_path / "no" / "trace.jsonl"))
    with pytest.raises(
        InputError, match=r"MLXFILL_TRACE=.*trace\.jsonl cannot be written: No such"
    ):
        engine_with(shared_model("llama"))


def test_a_full_disk_is_named(trace: Any) -> None:
    with engine_with(shared_model("llama")) as engine:
        run = engine.stream(PROMPT, **OPTIONS)
        said = r"MLXFILL_TRACE=.* cannot be written: File too large"
        with full_after(0), pytest.raises(InputError, match=said):
            run.result()
    assert trace("finish") == []


@pytest.mark.usefixtures("trace")
@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_all_rows_leave_although_their_end_cannot_be_traced(error: Any) -> None:
    guest = drafter(0.7)
    assert guest.drafter is not None

    def interrupted(*_: Any) -> None:
        raise error

    with engine_with(shared_model("llama"), guest) as engine:
        rows = RowScheduler(engine)
        options = {**OPTIONS, "on_prefill_progress": interrupted if error else None}
        for _ in range(3):
            rows.add(engine.stream(PROMPT, **options))
        leave = rows.round if error else rows.close
        with full_after(0), pytest.raises(InputError, match="cannot be written"):
            leave()
        assert len(rows) == 0
        assert [rows.closed for rows in guest.drafter.opened] == [True] * 3


@pytest.mark.usefixtures("trace")
def test_a_request_that_cannot_be_traced_leaves_no_drafter_open() -> None:
    guest = drafter(0.7)
    assert guest.drafter is not None
    with engine_with(shared_model("llama"), guest) as engine:
        with full_after(0), pytest.raises(InputError, match="cannot be written"):
            engine.stream(PROMPT, **OPTIONS)
        assert [rows.closed for rows in guest.drafter.opened] == [True]


# --- caches ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_caches_of_every_kind_count_what_was_forwarded(name: str, trace: Any) -> None:
    policies = Guest(
        sources=[
            *source(0.7, name=name, longest=4).sources,
            *source(1.0, name=name, policy=Policy.ASSERT, longest=4).sources,
        ]
    )
    result = generated(policies, name=name)
    assert result.faults == []
    assert trace("fault") == []


@pytest.mark.parametrize("options", [{"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 16}])
def test_quantized_caches_count_too(options: dict[str, Any], trace: Any) -> None:
    with engine_with(shared_model("llama", head_dim=32), drafter(0.7)) as engine:
        result = engine.generate(PROMPT, **OPTIONS, **options)
    assert result.faults == []
    assert trace("round")


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gemma3_text"])
def test_a_rewind_that_is_off_by_one_is_caught(
    name: str, trace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewind = CacheWindow.rewind
    with engine_with(shared_model(name), source(0.5, name=name)) as engine:
        assert engine.no_rewind() == ""
        monkeypatch.setattr(
            CacheWindow, "rewind", lambda self, keep: rewind(self, max(keep - 1, 0))
        )
        result = engine.generate(PROMPT, **OPTIONS)
    faults = [fault for fault in result.faults if fault.where == "caches"]
    assert len(faults) == 1
    assert faults[0].plugin == "engine"
    assert "holds" in faults[0].message
    assert "after the window of" in faults[0].message
    assert [record["message"] for record in trace("fault")] == [faults[0].message]


def test_a_cache_that_someone_else_changed_is_caught_before_the_next_window(trace: Any) -> None:
    runs: list[Any] = []

    class Meddler(ScriptedSource):
        def propose(self, view: Any) -> Any:
            if view.length > len(PROMPT) + 4 and len(runs) == 1:
                runs.append(runs[0].state.forwarder.caches[1].trim(1))
            return super().propose(view)

    guest = Guest(sources=[lambda r: Meddler(request=r, script=Script(session(), 1.0), longest=3)])
    with engine_with(shared_model("llama"), guest) as engine:
        runs.append(engine.stream(PROMPT, **OPTIONS))
        result = runs[0].result()
    (fault,) = [fault for fault in result.faults if fault.where == "caches"]
    assert fault.message.startswith("cache entry 1 (KVCache) holds ")
    assert ", before the " in fault.message
    assert len(trace("fault")) == 1
