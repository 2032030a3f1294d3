"""What is compiled once is kept for as long as it may be needed."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import attrs
import pytest

from mlxfill_fill_strict import compiled, compiled_rows


@pytest.fixture
def request_(families: Any, make_tool: Any) -> Any:
    tools = [make_tool("get", "path"), make_tool("write", "path", "text")]
    return families.request(families.tokenizer("hermes"), tools)


def test_the_same_tools_are_compiled_once(request_: Any, families: Any) -> None:
    renderings = []

    def render(*arguments: Any, **options: Any) -> Any:
        renderings.append(arguments)
        return request_.render(*arguments, **options)

    tools = [*request_.tools, {"type": "function", "function": {"name": "count"}}]
    request = attrs.evolve(request_, render=render, tools=tuple(tools))
    first = compiled_rows(request)
    count = len(renderings)
    assert count > 20
    other = [{"role": "user", "content": "Something else"}]
    again = families.request(request.tokenizer, tools, other)
    assert compiled_rows(attrs.evolve(again, render=render)) is first
    assert len(renderings) == count


def test_other_tools_options_or_tokenizers_are_compiled_anew(request_: Any, families: Any) -> None:
    first = compiled_rows(request_)
    assert compiled_rows(attrs.evolve(request_, tools=request_.tools[::-1])) is not first
    assert compiled_rows(attrs.evolve(request_, tools=request_.tools[:1])) is not first
    assert compiled_rows(attrs.evolve(request_, template_options={"x": 1})) is not first
    plain = families.tokenizer("hermes", special=False)
    other = compiled_rows(attrs.evolve(request_, tokenizer=plain))
    assert other is not first
    assert other == first


def test_an_edited_template_is_compiled_anew(families: Any, make_tool: Any) -> None:
    tokenizer = families.tokenizer("closing_turns", special=False)
    request = families.request(tokenizer, [make_tool("get", "path")])
    template = tokenizer.chat_template
    first = compiled_rows(request)
    tokenizer.chat_template = template.replace("<tool_call>", "<|call|>")
    try:
        second = compiled_rows(request)
    finally:
        tokenizer.chat_template = template
    assert second.rows != first.rows
    assert compiled_rows(request) is first


def test_rows_go_with_their_tokenizer(families: Any, make_tool: Any) -> None:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    known = families.tokenizer("hermes")
    tokenizer = TokenizerWrapper(known._tokenizer)
    request = families.request(tokenizer, [make_tool("get", "path")])
    found = weakref.ref(compiled_rows(request))
    gone = weakref.ref(tokenizer)
    assert found() is not None
    del tokenizer, request
    gc.collect()
    assert gone() is None
    assert found() is None


def test_few_sets_of_tools_are_kept(
    request_: Any, make_tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_MOST_KEPT", 2)
    sets = [(make_tool(name, "path"),) for name in ("alpha", "beta", "gamma")]
    first, second, third = (compiled_rows(attrs.evolve(request_, tools=tools)) for tools in sets)
    assert compiled_rows(attrs.evolve(request_, tools=sets[2])) is third
    assert compiled_rows(attrs.evolve(request_, tools=sets[1])) is second
    assert compiled_rows(attrs.evolve(request_, tools=sets[0])) is not first
