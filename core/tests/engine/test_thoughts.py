"""What a model thought in earlier turns reaches it, whatever its template calls that."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper

from mlxfill_testing import engine_with, shared_model, tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

THOUGHT, SAID = "it may rain", "One moment."
CALL = {"type": "function", "id": "a1b2c3d4e", "function": {"name": "forecast", "arguments": "{}"}}
TURN = (
    "{{% for m in messages %}}<{{{{ m.role }}}}>{thought}{{{{ m.content or '' }}}}"
    "{{% for c in m.tool_calls or [] %}}<call>{{{{ c.function.name }}}}{{% endfor %}}"
    "{{% endfor %}}<reply>"
)
CHANNELS = (  # as gpt-oss: thoughts stand beside calls, and a content there is a thought
    "{%- for m in messages -%}"
    "{%- if m.role == 'assistant' and m.tool_calls -%}"
    "{%- if m.content and m.thinking -%}{{- raise_exception('not both') -}}{%- endif -%}"
    "<analysis>{{- m.content or m.thinking -}}<call>"
    "{%- else -%}<{{- m.role -}}>{{- m.content -}}{%- endif -%}"
    "{%- endfor -%}<reply>"
)
PARTS = (  # as Mistral's
    "{%- for m in messages -%}<{{- m.role -}}>"
    "{%- if m.content is string -%}{{- m.content -}}{%- else -%}"
    "{%- for p in m.content or [] -%}"
    "{%- if p.type == 'thinking' -%}[THINK]{{- p.thinking -}}[/THINK]"
    "{%- else -%}{{- p.text -}}{%- endif -%}{%- endfor -%}{%- endif -%}"
    "{%- if m.tool_calls -%}<call>{%- endif -%}{%- endfor -%}<reply>"
)
NAMES = ("reasoning_content", "reasoning", "thinking")


@contextmanager
def writing(template: str) -> Iterator[Callable[[list[dict[str, Any]]], str]]:
    """What a template makes of a conversation with a reply in it."""
    raw: Any = copy.deepcopy(tiny_tokenizer()._tokenizer)
    raw.chat_template = template
    before, after = ({"role": "user", "content": each} for each in ("hello", "and now"))
    with engine_with(shared_model("llama"), tokenizer=TokenizerWrapper(raw)) as engine:
        yield lambda reply: engine.check([before, *reply, after]).text


def reply(name: str, content: str | None = SAID, *, calls: bool = False) -> list[dict[str, Any]]:
    message = {"role": "assistant", "content": content, name: THOUGHT}
    if not calls:
        return [message]
    after = {"role": "tool", "tool_call_id": CALL["id"], "content": "rain"}
    return [{**message, "tool_calls": [CALL]}, after]


@pytest.mark.parametrize(
    "reads",
    [
        *(f"m.{name}" for name in NAMES),
        "m['thinking']",
        "m.get('reasoning', '')",
        "(m.reasoning or m.thinking)",
        "(m.reasoning_content or m.reasoning)",
    ],
)
def test_a_template_is_given_thoughts_under_the_name_that_it_reads(reads: str) -> None:
    template = TURN.format(thought=f"{{% if {reads} %}}({{{{ {reads} }}}}){{% endif %}}")
    with writing(template) as written:
        for given, calls in product(NAMES, (False, True)):
            told = written(reply(given, calls=calls))
            assert f"<assistant>({THOUGHT}){SAID}" in told
            assert told.count(THOUGHT) == 1


def test_channels_have_thoughts_beside_calls() -> None:
    with writing(CHANNELS) as written:
        for given in NAMES:
            for content, told in (("", ""), (None, ""), (SAID, f"\n\n{SAID}")):
                asked = reply(given, content, calls=True)
                assert f"<analysis>{THOUGHT}{told}<call>" in written(asked)
            plain = f"<user>hello<assistant>{SAID}<user>and now<reply>"
            assert written(reply(given)) == plain


def test_parts_have_thoughts_before_the_text() -> None:
    with writing(PARTS) as written:
        for given, (content, calls) in product(NAMES, ((SAID, False), (SAID, True), ("", True))):
            told = written(reply(given, content, calls=calls))
            end = "<call>" if calls else ""
            assert f"<assistant>[THINK]{THOUGHT}[/THINK]{content}{end}" in told


def test_where_thoughts_are_never_read_the_messages_stay_as_they_are() -> None:
    with writing(TURN.format(thought="")) as written:
        assert written(reply("thinking")) == f"<user>hello<assistant>{SAID}<user>and now<reply>"
