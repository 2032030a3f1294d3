from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm import load
from mlx_lm.models.cache import make_prompt_cache

from mlxfill_model_tiny import held_out_asks
from mlxfill_model_tiny.check import Score, judged
from mlxfill_model_tiny.plugin import mlxfill_resolve_model

TOOLS = held_out_asks(1)[0].tools
ASKED = [{"role": "user", "content": "Look up order A1234."}]
CALLED: list[dict[str, Any]] = [
    *ASKED,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "type": "function",
                "function": {"name": "lookup_order", "arguments": {"order_id": "A1234"}},
            }
        ],
    },
    {"role": "tool", "content": '{"status": "shipped"}'},
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load(str(mlxfill_resolve_model("tiny")))[1]


@pytest.mark.parametrize(
    ("name", "caches"),
    [
        ("tiny", ["ArraysCache", "ArraysCache", "ArraysCache", "KVCache"]),
        ("tiny-draft", ["KVCache", "KVCache"]),
    ],
)
def test_mlx_lm_loads_the_model_and_finds_out_what_it_can_do(name: str, caches: list[str]) -> None:
    model, tokenizer, *_ = load(str(mlxfill_resolve_model(name)))
    assert [type(cache).__name__ for cache in make_prompt_cache(model)] == caches
    assert {array.dtype for array in dict(tree_flatten(model.parameters())).values()} == {
        mx.float32
    }
    assert tokenizer.has_tool_calling
    assert tokenizer.has_thinking
    assert tokenizer.tool_parser('{"name": "f", "arguments": {"x": 1}}', None) == {
        "name": "f",
        "arguments": {"x": 1},
    }
    assert {tokenizer.decode([i]) for i in tokenizer.eos_token_ids} == {
        "<|im_end|>",
        "<|endoftext|>",
    }


def test_target_and_draft_share_their_tokenizer() -> None:
    target, draft = mlxfill_resolve_model("tiny"), mlxfill_resolve_model("tiny-draft")
    assert target is not None
    assert draft is not None
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (target / name).read_bytes() == (draft / name).read_bytes()


@pytest.mark.parametrize("thinking", [True, False])
def test_greedy_replies_to_held_out_asks_call_the_right_tool(thinking: bool) -> None:
    asks = held_out_asks(40, seed=1)
    verdicts = judged(asks, thinking=thinking)
    score = Score.of(verdict for some in verdicts.values() for verdict in some)
    assert score.asks == len(asks)
    assert score.well_formed >= 0.9 * score.asks, f"well-formed: {score}"
    assert score.right_tool >= 0.9 * score.asks, f"right tool: {score}"
    assert score.exact >= 0.75 * score.asks, f"exact: {score}"


def test_the_template_shows_tools_and_their_results(tokenizer: Any) -> None:
    text = tokenizer.apply_chat_template(CALLED, tools=TOOLS, tokenize=False)
    for tool in TOOLS:
        assert f'"name": "{tool["function"]["name"]}"' in text
    assert (
        '<tool_call>\n{"name": "lookup_order", "arguments": {"order_id": "A1234"}}\n</tool_call>'
        in text
    )
    assert '<tool_response>\n{"status": "shipped"}\n</tool_response>' in text
    assert "# Tools" not in tokenizer.apply_chat_template(CALLED, tokenize=False)


def test_the_template_takes_arguments_as_json_text_too(tokenizer: Any) -> None:
    called = [*CALLED]
    function = {"name": "lookup_order", "arguments": '{"order_id": "A1234"}'}
    called[1] = {**called[1], "tool_calls": [{"type": "function", "function": function}]}
    as_text = tokenizer.apply_chat_template(called, tools=TOOLS, tokenize=False)
    assert as_text == tokenizer.apply_chat_template(CALLED, tools=TOOLS, tokenize=False)


@pytest.mark.parametrize(
    ("options", "ending"),
    [
        ({}, "<|im_start|>assistant\n<think>\n"),
        ({"enable_thinking": False}, "<think>\n\n</think>\n\n"),
        ({"enable_thinking": True}, "<|im_start|>assistant\n<think>\n"),
    ],
)
def test_the_prompt_ends_where_thinking_begins_or_is_over(
    tokenizer: Any, options: dict[str, bool], ending: str
) -> None:
    prompt = tokenizer.apply_chat_template(
        ASKED, tokenize=False, add_generation_prompt=True, **options
    )
    assert prompt.endswith(ending)


@pytest.mark.parametrize("thought", ["", "I will look up order A1234."])
def test_a_finished_conversation_extends_its_prompts_token_by_token(
    tokenizer: Any, thought: str
) -> None:
    answer = {"role": "assistant", "content": "It is shipped.", "reasoning_content": thought}
    called = [*CALLED]
    called[1] = {**called[1], "reasoning_content": thought}
    finished = tokenizer.apply_chat_template([*called, answer], tools=TOOLS)
    for upto in (1, 3):
        prompt = tokenizer.apply_chat_template(
            called[:upto], tools=TOOLS, add_generation_prompt=True, enable_thinking=bool(thought)
        )
        assert finished[: len(prompt)] == prompt
