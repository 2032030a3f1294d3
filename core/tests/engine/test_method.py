"""Generation methods under the engine: limits, statistics, and methods that misbehave."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.models.cache import make_prompt_cache

from mlxfill import InputError, PluginError, hookimpl
from mlxfill_testing import (
    VOCAB,
    Guest,
    engine_with,
    plain,
    plugged,
    shared_model,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlxfill import Request, Result, TargetView

PROMPT = [5, 9, 5, 9, 5]
EOS = 63
Forwards = list[list[int]]


@define
class Scripted:
    """Says for each forward which tokens it brings; ``ended`` once it was closed."""

    forwards: Sequence[Any]
    name: str = "scripted"
    made: int = 0
    ended: bool = False
    seen: list[Request] = field(factory=list)

    def generate(self, request: Request) -> Iterator[Any]:
        self.seen.append(request)
        try:
            for forward in self.forwards:
                self.made += 1
                yield [(token, "made") for token in forward]
        finally:
            self.ended = True


def run(method: Any, **options: Any) -> Result:
    return plugged(shared_model("llama"), Guest(method=method), PROMPT, 512, **options)


@given(
    forwards=st.lists(st.lists(st.integers(0, VOCAB - 1), max_size=4), max_size=6),
    limit=st.integers(1, 12),
)
def test_a_reply_is_cut_where_any_other_would_be(forwards: Forwards, limit: int) -> None:
    method = Scripted(forwards)
    guest = Guest(method=method)
    result = plugged(shared_model("llama"), guest, PROMPT, limit, eos_token_ids=[EOS])
    said = [token for forward in forwards for token in forward]
    text = said[: said.index(EOS)] if EOS in said else said
    assert result.tokens == text[:limit]
    assert result.finish_reason == ("length" if len(text) >= limit else "stop")
    assert set(result.origins) <= {"made"}
    stats = result.stats
    assert stats.target_forwards == method.made
    assert sum(stats.rounds) == stats.generated_tokens == len(result.tokens)
    assert len(stats.rounds) <= method.made
    assert method.ended


def test_forwards_that_show_nothing_count() -> None:
    result = run(Scripted([[], [], [1, 2], [], [3]]))
    assert result.tokens == [1, 2, 3]
    assert result.stats.rounds == [0, 0, 2, 0, 1]
    assert result.stats.target_forwards == 5
    assert result.stats.tokens_per_forward == pytest.approx(0.6)


def test_cancelling_is_seen_between_forwards_that_show_nothing() -> None:
    stop = threading.Event()

    class Endless(Scripted):
        def generate(self, request: Request) -> Iterator[Any]:  # noqa: ARG002
            for self.made in range(1, 1000):
                if self.made == 3:
                    stop.set()
                yield []

    method = Endless([])
    result = run(method, cancel=stop)
    assert (result.finish_reason, result.tokens, method.made) == ("cancelled", [], 3)


def test_leaving_a_run_closes_the_method() -> None:
    method = Scripted([[1, 2], [3]])
    with engine_with(shared_model("llama"), Guest(method=method)) as engine:
        running = engine.stream(PROMPT)
        assert next(running).token == 1
        running.close()
        assert running.stats.generated_tokens == 1
    assert method.ended


def test_a_run_ends_for_everybody_although_its_method_fails_when_it_is_left() -> None:
    class Late(Scripted):
        def generate(self, request: Request) -> Iterator[Any]:
            try:
                yield from super().generate(request)
            finally:
                raise RuntimeError("late")

    guest = Guest(method=Late([[1], [2], [3]]))
    with engine_with(shared_model("llama"), guest) as engine:
        left = engine.stream(PROMPT)
        next(left)
        with pytest.raises(PluginError, match="'scripted' failed: RuntimeError: late"):
            left.close()
        assert [event.kind for event in guest.events] == ["request", "finish"]


def test_nobody_else_is_asked() -> None:
    truth = [*PROMPT, 1, 2, 3]
    source, drafter = Guest.offering(truth, 1.0), Guest.drafting(truth, 1.0)
    both = Guest(sources=source.sources, drafter=drafter.drafter, method=Scripted([[1, 2, 3]]))
    result = plugged(shared_model("llama"), both, PROMPT, 9)
    assert result.tokens == [1, 2, 3]
    assert both.seated == []
    assert (result.stats.spec["offers"], result.stats.spec["drafted"]) == (0, 0)
    both.method = None
    assert plugged(shared_model("llama"), both, PROMPT, 9).stats.spec["offers"] > 0


def raising(error: BaseException) -> Any:
    class Raising(Scripted):
        def generate(self, request: Request) -> Iterator[Any]:  # noqa: ARG002
            yield [(1, "made")]
            raise error

    return Raising([])


class Nothing:
    name = "nothing"

    def generate(self, request: Request) -> Any:  # noqa: ARG002
        return None


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (raising(RuntimeError("out of\norder")), "'scripted' failed: RuntimeError: out of order"),
        (raising(SystemExit(3)), "'scripted' failed: SystemExit: 3"),
        (Nothing(), "'nothing' failed: TypeError: 'NoneType' object is not iterable"),
        (Scripted([[VOCAB]]), f"yielded ({VOCAB}, 'made'), which is no token id"),
        (Scripted([[-1]]), "yielded (-1, 'made')"),
        (Scripted([[1.0]]), "yielded (1.0, 'made')"),
        (Scripted([[True]]), "yielded (True, 'made')"),
        (Scripted([[None]]), "yielded (None, 'made')"),
    ],
)
def test_a_method_that_misbehaves_is_named(method: Any, said: str) -> None:
    with pytest.raises(PluginError) as error:
        run(method)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("forward", [7, "text", (1, "made"), None])
def test_what_is_no_list_of_pairs_is_named(forward: Any) -> None:
    class Odd(Scripted):
        def generate(self, request: Request) -> Iterator[Any]:  # noqa: ARG002
            yield forward

    with pytest.raises(PluginError, match=r"generation method 'scripted' yielded"):
        run(Odd([]))


def test_a_method_may_refuse_an_option() -> None:
    with pytest.raises(InputError, match="top_k is not known here"):
        run(raising(InputError("top_k is not known here")))


def test_after_a_method_failed_the_engine_goes_on() -> None:
    model = shared_model("llama")
    guest = Guest(method=raising(RuntimeError("once")))
    with engine_with(model, guest) as engine:
        with pytest.raises(PluginError):
            engine.generate(PROMPT)
        guest.method = None
        result = engine.generate(PROMPT, max_tokens=6)
    assert result.tokens == plain(model, PROMPT, 6).tokens


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"prompt_cache": make_prompt_cache(shared_model("llama"))}, "prompt_cache"),
        ({"checkpoint": "reply"}, "checkpoint"),
        ({"on_checkpoint": print}, "on_checkpoint"),
    ],
)
def test_options_about_single_tokens_are_refused(options: dict[str, Any], name: str) -> None:
    said = f"token by token: leave out {name}"
    guest = Guest(method=Scripted([[1]]))
    with engine_with(shared_model("llama"), guest) as engine:
        with pytest.raises(InputError, match=said):
            engine.check(PROMPT, **options)
        with pytest.raises(InputError, match=said):
            engine.stream(PROMPT, **options)
        guest.method = None
        engine.check(PROMPT, **options)


@pytest.mark.parametrize("architecture", ["llama", "qwen3_5"])
def test_a_method_makes_caches_of_whatever_kind_the_model_has(architecture: str) -> None:
    @define
    class Greedily:
        """Decodes plainly, with what the target offers."""

        target: TargetView
        name: str = "greedily"

        def generate(self, request: Request) -> Iterator[Any]:
            cache, ids = self.target.new_cache(), list(request.prompt_ids)
            while True:
                logits = self.target.forward(mx.array([ids]), cache)
                token: Any = mx.argmax(logits[0, -1]).item()
                ids = [token]
                yield [(token, "greedy")]

    class Plugin(Guest):
        @hookimpl
        def mlxfill_generation_method(self, target: TargetView, request: Request) -> Any:
            return Greedily(target) if request.prompt_ids else None

    model = shared_model(architecture)
    assert plugged(model, Plugin(), PROMPT, 8).tokens == plain(model, PROMPT, 8).tokens


def test_a_session_does_not_mind() -> None:
    guest = Guest(method=Scripted([[1, 2]]))
    with engine_with(shared_model("llama"), guest) as engine:
        first = engine.generate(PROMPT, session="a")
        guest.method = Scripted([[3]])
        second = engine.generate([*PROMPT, 1, 2, 4], session="a")
        guest.method = None
        third = engine.generate(PROMPT, session="a", max_tokens=4)
    assert (first.tokens, second.tokens) == ([1, 2], [3])
    assert third.tokens == plain(shared_model("llama"), PROMPT, 4).tokens
