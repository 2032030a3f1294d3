# ruff: noqa: RUF001 - markers of DeepSeek have wide bars
"""How models call tools for which mlx-lm has no parser, or one that reads them wrong.

mlx-lm picks one of its parsers by a model's chat template.  What is known here takes that place
where a marker of another form stands in the template or among the tokens: then calls are told from
text, and may be filled and forced, like all others.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import getsource
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from mlxfill.tokens import ids_by_name
from mlxfill.tool_calls.jsontext import as_call, json_calls, some
from mlxfill.tool_calls.readers import FUNCTIONS, READERS, Read, counted, headed

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper


@frozen
class CallFormat:
    """``start`` CALLS ``end``; "" where the end of the reply ends them.

    ``signs``: texts by which a template or vocabulary is known; ``alone``: the marker is no
    token of its own, so that a reply begins with calls, or has none; ``edges``: further markers,
    see ``TokenizerWrapper.response_transitions``; ``mends``: mlx-lm has a parser, which is wrong.
    """

    signs: tuple[str, ...]
    start: str
    end: str
    read: Read
    alone: bool = False
    edges: Mapping[str, list[tuple[str, str]]] = field(factory=dict)
    mends: bool = False

    def __call__(self, text: str, tools: Sequence[Mapping[str, Any]] | None = None) -> list[Any]:
        """The calls in ``text``.  Raises ``ValueError`` where it is anything else."""
        return self.read(text, tools)


def with_calls(tokenizer: TokenizerWrapper) -> TokenizerWrapper:
    """The same tokenizer; it reads calls of a form below, and knows where the model thinks."""
    template = _source(tokenizer)
    vocabulary = ids_by_name(tokenizer, {sign for known in FORMATS for sign in known.signs})

    def knows(signs: tuple[str, ...]) -> bool:
        return all(sign in vocabulary or sign in template for sign in signs)

    # mlx-lm looks at the vocabulary alone, and some have markers that the model never writes.
    if not (tokenizer.has_thinking and tokenizer.think_start in template):
        for start, end, signs in THINKING:
            if all(sign in template for sign in signs):
                _set(tokenizer, "think", start, end)
    for known in FORMATS:
        if (known.mends or tokenizer.tool_parser is None) and knows(known.signs):
            _set(tokenizer, "tool_call", known.start, known.end)
            tokenizer._tool_parser = known  # noqa: SLF001
            if known.edges:
                tokenizer._response_format = {"transitions": known.edges}  # noqa: SLF001
            return tokenizer
    if tokenizer.tool_parser is not None:
        tokenizer._tool_parser = _strict(tokenizer.tool_parser)  # noqa: SLF001
    return tokenizer


def _strict(parser: Callable[..., Any]) -> Read:
    """The reader for the form that one of mlx-lm's parsers reads, or the parser where none is."""
    name = parser.__module__.rpartition(".")[2]
    if name == "kimi_k3":  # its calls tell the types themselves
        return counted(parser, "<|open|>call ")
    reader: Read = READERS.get(name, parser)
    return reader


def _source(tokenizer: TokenizerWrapper) -> str:
    """The text of a chat template, or of mlx-lm's own code in its place."""
    code = getattr(tokenizer, "_chat_template", None)
    if code is not None:
        return getsource(sys.modules[code.__module__])
    template = tokenizer.chat_template
    return template if isinstance(template, str) else ""


def _set(tokenizer: TokenizerWrapper, what: str, start: str, end: str) -> None:
    """Set what mlx-lm's own ``load`` sets from the files that it ships."""
    for edge, text in (("start", start), ("end", end)):
        ids = tuple(tokenizer.encode(text, add_special_tokens=False)) if text else ()
        setattr(tokenizer, f"_{what}_{edge}", text)
        setattr(tokenizer, f"_{what}_{edge}_tokens", ids)


# --- readers ------------------------------------------------------------------------------------


def _llama(text: str, tools: Sequence[Mapping[str, Any]] | None = None) -> list[Any]:
    return json_calls('{"' + text, tools)


_INVOKED = re.compile(r'\s*<｜DSML｜invoke name="(.*?)">(.*?)</｜DSML｜invoke>\s*', re.DOTALL)
_PARAMETER = re.compile(
    r'\s*<｜DSML｜parameter name="(.*?)" string="(true|false)">(.*?)</｜DSML｜parameter>\s*',
    re.DOTALL,
)


def _dsml(text: str, _: object = None) -> list[Any]:
    """Calls of DeepSeek V3.2 and later: each argument says whether it is a text or JSON."""

    def arguments(body: str) -> Iterator[tuple[str, Any]]:
        for key, is_text, value in _pieces(_PARAMETER, body):
            yield key, value if is_text == "true" else json.loads(value)

    calls = [
        as_call({"name": n, "arguments": dict(arguments(b))}) for n, b in _pieces(_INVOKED, text)
    ]
    return some(calls)


def _pieces(pattern: re.Pattern[str], text: str) -> list[tuple[str, ...]]:
    """Groups of all matches.  Raises ``ValueError`` where something stands between them."""
    if pattern.sub("", text).strip():
        raise ValueError("no call")
    return pattern.findall(text)


# --- forms --------------------------------------------------------------------------------------

_HARMONY = {
    "normal": [
        ("<|channel|>commentary to=functions.", "tool"),
        ("<|channel|>analysis to=functions.", "tool"),
        ("<|channel|>commentary<|message|>", "normal"),
        ("<|channel|>final<|message|>", "normal"),
        ("<|end|><|start|>assistant", "normal"),
    ],
    "tool": [("<|end|><|start|>assistant", "normal")],
}

FORMATS = (
    CallFormat(
        ("[CALL_ID]",),
        "[TOOL_CALLS]",
        "",
        headed(r"(?:\[TOOL_CALLS\])?\s*(?P<name>[\w.-]+)(?:\[CALL_ID\](?P<id>\w+))?\[ARGS\]\s*"),
        mends=True,  # mlx-lm's takes the id for the name
    ),
    CallFormat(
        ("<|channel|>commentary",),
        "to=functions.",
        "",
        headed(r"(?P<name>[\w.-]+)(?:(?!<\|message\|>).)*<\|message\|>\s*", r"<\|call\|>"),
        edges=_HARMONY,
    ),
    *(
        CallFormat(("｜DSML｜", f"{kind}>"), f"<｜DSML｜{kind}>", f"</｜DSML｜{kind}>", _dsml)
        for kind in ("function_calls", "tool_calls")
    ),
    CallFormat(
        ("<｜tool▁calls▁begin｜>",),
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        headed(
            r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?"
            r"(?P<name>[\w.-]+)(?:<｜tool▁sep｜>|\s*```json)\s*",
            r"\s*(?:```)?\s*<｜tool▁call▁end｜>",
        ),
    ),
    *(
        CallFormat((start,), start, end, read)
        for start, end, read in (
            ("<|START_ACTION|>", "<|END_ACTION|>", json_calls),
            ("<TOOLCALL>", "</TOOLCALL>", json_calls),
            ("<seed:tool_call>", "</seed:tool_call>", FUNCTIONS),
            ("<|tools_prefix|>", "<|tools_suffix|>", json_calls),
            ("<tool_calls>", "</tool_calls>", json_calls),
            ("<|function_call|>", "<|message_sep|>", json_calls),
        )
    ),
    CallFormat(("<|/tool_call|>",), "<|tool_call|>", "<|/tool_call|>", json_calls),
    CallFormat(("<|tool_call|>",), "<|tool_call|>", "", json_calls),
    CallFormat(('{"name": function name, "parameters":',), '{"', "", _llama, alone=True),
    CallFormat(("<tool_call>", "tools"), "<tool_call>", "</tool_call>", json_calls),
)
"""The first one whose signs are all there is taken."""

THINKING = (
    ("[THINK]", "[/THINK]", ("[THINK]", "[/THINK]")),
    ("<seed:think>", "</seed:think>", ("<seed:think>", "</seed:think>")),
    ("<|START_THINKING|>", "<|END_THINKING|>", ("<|START_THINKING|>", "<|END_THINKING|>")),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant", ("<|channel|>commentary",)),
)
"""Markers of thoughts that mlx-lm does not look for, and what a template says that has them."""
