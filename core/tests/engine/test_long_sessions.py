"""What a request does once does not grow into something that it does for each token or turn."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper

from mlxfill import Stats
from mlxfill.chat.roles import check_roles
from mlxfill_testing import engine_with, shared_model, tiny_tokenizer


class Watched(tuple[int, ...]):
    """Ids that tell when somebody looks at each."""

    __slots__ = ()
    looks: ClassVar[list[int]] = []

    def __iter__(self) -> Iterator[int]:
        self.looks.append(len(self))
        return super().__iter__()


def test_statistics_are_told_without_a_look_at_every_token() -> None:
    stats = Stats(prompt_tokens=5, cache_tokens=Watched(range(5)), rounds=[1, 2])
    told = stats.as_dict()
    assert told["prompt_tokens"] == 5
    assert not {"cache_tokens", "rounds"} & set(told)
    assert not Watched.looks


class Searched(str):
    """A text that tells how many of its characters are looked through."""

    __slots__ = ()
    read: ClassVar[list[int]] = []

    def find(self, sub: str, start: Any = 0, end: Any = None, /) -> int:
        found = super().find(sub, start, end)
        self.read.append((found if found >= 0 else len(self)) - start)
        return found

    def __contains__(self, key: Any, /) -> bool:
        return self.find(key) >= 0


def test_a_long_conversation_is_searched_once_for_its_messages() -> None:
    messages = [{"role": "user", "content": f"message {at:04d} of many"} for at in range(500)]
    text = Searched("".join(message["content"] for message in messages))
    check_roles(messages, text, "", lambda _: "")
    assert sum(text.read) <= len(text)


def test_messages_in_another_order_are_found_as_well() -> None:
    messages = [{"role": "user", "content": f"message {at:04d}"} for at in range(9)]
    text = "".join(message["content"] for message in reversed(messages))
    check_roles(messages, text, "", lambda _: pytest.fail("rendered again"))


def test_a_long_system_message_is_not_read_again_each_turn() -> None:
    """A hybrid model leaves its caches after it: where that is was found out in the first turn."""
    raw: Any = copy.deepcopy(tiny_tokenizer()._tokenizer)
    encode, read = raw.encode, []

    def counted(text: str, **options: Any) -> Any:
        read.append(len(text))
        return encode(text, **options)

    raw.encode = counted
    messages = [{"role": "system", "content": "be brief and kind " * 60}]
    turns = []
    with engine_with(shared_model("qwen3_5"), tokenizer=TokenizerWrapper(raw)) as engine:
        for ask in ("one", "two", "three"):
            messages = [*messages, {"role": "user", "content": ask}]
            read.clear()
            result = engine.generate(messages, session="s", max_tokens=2)
            turns.append((sum(read), result.stats.cached_tokens))
    once = len(messages[0]["content"])
    assert [cached > 64 for _, cached in turns] == [False, True, True]
    assert turns[0][0] > 3 * once
    assert [count < 1.5 * once for count, _ in turns] == [False, True, True]


def test_a_beginning_that_changed_is_looked_for_again() -> None:
    """A template may write the time: what was known of it is then no beginning any more."""
    raw: Any = copy.deepcopy(tiny_tokenizer()._tokenizer)
    template, cached = raw.chat_template, []
    with engine_with(shared_model("qwen3_5"), tokenizer=TokenizerWrapper(raw)) as engine:
        for hour, ask in ((1, "one"), (2, "two"), (2, "three")):
            raw.chat_template = f"at {hour} they say that {'the thing is on ' * 9}{template}"
            messages = [{"role": "user", "content": ask}]
            result = engine.generate(messages, session="s", max_tokens=2)
            cached.append(result.stats.cached_tokens > 64)
    assert cached == [False, False, True]


def test_caches_that_there_is_no_room_for_are_named_once() -> None:
    wide = shared_model("llama", head_dim=512)
    with engine_with(wide, config={"cache": {"max_mb": 1}}) as engine:
        results = [engine.generate([5, 9, 5], session="s", max_tokens=2) for _ in range(3)]
    assert [result.stats.cached_tokens for result in results] == [0, 0, 0]
    (fault,) = results[0].faults
    assert (fault.plugin, fault.where) == ("engine", "prompt cache")
    assert "max_mb of [cache] is 1" in fault.message
    assert [len(result.faults) for result in results[1:]] == [0, 0]
