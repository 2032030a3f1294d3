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
from collections.abc import Callable, Iterator, Mapping
from inspect import getsource
from typing import Any, TypeAlias

from attrs import field, frozen

Read: TypeAlias = Callable[[str, Any], list[dict[str, Any]]]
"""As mlx-lm's parsers: the calls in what stands between the markers, and the request's tools."""
_BETWEEN = " \n\t,;"
_DECODER = json.JSONDecoder()
_ARGUMENTS = ("arguments", "parameters")
_NAMES = ("name", "tool_name")


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

    def __call__(self, text: str, tools: Any = None) -> list[dict[str, Any]]:  # noqa: ANN401
        """The calls in ``text``.  Raises ``ValueError`` where it is anything else."""
        return self.read(text, tools)


def with_calls(tokenizer: Any) -> Any:  # noqa: ANN401 - mlx-lm's wrapper, untyped
    """The same tokenizer; it reads calls of a form below, and knows where the model thinks."""
    vocabulary, template = tokenizer.get_vocab(), _source(tokenizer)

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
            break
    return tokenizer


def _source(tokenizer: Any) -> str:  # noqa: ANN401
    """The text of a chat template, or of mlx-lm's own code in its place."""
    code = getattr(tokenizer, "_chat_template", None)
    if code is not None:
        return getsource(sys.modules[code.__module__])
    template = tokenizer.chat_template
    return template if isinstance(template, str) else ""


def _set(tokenizer: Any, what: str, start: str, end: str) -> None:  # noqa: ANN401
    """Set what mlx-lm's own ``load`` sets from the files that it ships."""
    for edge, text in (("start", start), ("end", end)):
        ids = tuple(tokenizer.encode(text, add_special_tokens=False)) if text else ()
        setattr(tokenizer, f"_{what}_{edge}", text)
        setattr(tokenizer, f"_{what}_{edge}_tokens", ids)


# --- readers ------------------------------------------------------------------------------------


def _json(text: str, _: object = None) -> list[dict[str, Any]]:
    """Calls that are JSON, one after the other or in a list, and nothing else."""
    calls: list[dict[str, Any]] = []
    rest = text.strip()
    while rest:
        value, end = _DECODER.raw_decode(rest)
        calls += [_call(each) for each in (value if isinstance(value, list) else [value])]
        rest = rest[end:].lstrip(_BETWEEN)
    return _some(calls)


def _call(found: object) -> dict[str, Any]:
    if isinstance(found, Mapping):
        name = next((found[key] for key in _NAMES if key in found), None)
        arguments = next((found[key] for key in _ARGUMENTS if key in found), None)
        if name is None and len(found) == 1:  # the name is the key of its arguments
            ((name, arguments),) = found.items()
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        if isinstance(name, str) and isinstance(arguments, dict):
            return {"name": name, "arguments": arguments}
    raise ValueError("no call")


def _headed(head: str) -> Read:
    """Calls whose arguments in JSON follow what ``head`` matches, ``name`` in it."""
    pattern = re.compile(head, re.DOTALL)

    def read(text: str, _: object = None) -> list[dict[str, Any]]:
        calls, at = [], 0
        while (found := pattern.search(text, at)) is not None:
            arguments, at = _DECODER.raw_decode(text, found.end())
            given = found.groupdict()
            calls.append({"arguments": arguments, **{k: v for k, v in given.items() if v}})
        return _some(calls)

    return read


def _some(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not calls:
        raise ValueError("no call")
    return calls


def _llama(text: str, tools: Any = None) -> list[dict[str, Any]]:  # noqa: ANN401
    return _json('{"' + text, tools)


_INVOKED = re.compile(r'<｜DSML｜invoke name="(.*?)">(.*?)</｜DSML｜invoke>', re.DOTALL)
_PARAMETER = re.compile(
    r'<｜DSML｜parameter name="(.*?)" string="(true|false)">(.*?)</｜DSML｜parameter>', re.DOTALL
)


def _dsml(text: str, _: object = None) -> list[dict[str, Any]]:
    """Calls of DeepSeek V3.2 and later: each argument says whether it is a text or JSON."""

    def arguments(body: str) -> Iterator[tuple[str, Any]]:
        for key, is_text, value in _PARAMETER.findall(body):
            yield key, value if is_text == "true" else json.loads(value)

    return _some([{"name": n, "arguments": dict(arguments(b))} for n, b in _INVOKED.findall(text)])


def _functions(text: str, tools: Any = None) -> list[dict[str, Any]]:  # noqa: ANN401
    """Qwen3-Coder's form between other markers."""
    from mlx_lm.tool_parsers.qwen3_coder import parse_tool_call

    pieces = [f"{piece}</function>" for piece in text.split("</function>")[:-1]]
    return _some([parse_tool_call(piece, tools) for piece in pieces])


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
        _headed(r"(?P<name>[\w.-]+)(?:\[CALL_ID\](?P<id>\w+))?\[ARGS\]\s*"),
        mends=True,  # mlx-lm's takes the id for the name
    ),
    CallFormat(
        ("<|channel|>commentary",),
        "to=functions.",
        "",
        _headed(r"(?P<name>[\w.-]+)(?:(?!<\|message\|>).)*<\|message\|>\s*"),
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
        _headed(
            r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?"
            r"(?P<name>[\w.-]+)(?:<｜tool▁sep｜>|\s*```json)\s*"
        ),
    ),
    *(
        CallFormat((start,), start, end, read)
        for start, end, read in (
            ("<|START_ACTION|>", "<|END_ACTION|>", _json),
            ("<TOOLCALL>", "</TOOLCALL>", _json),
            ("<seed:tool_call>", "</seed:tool_call>", _functions),
            ("<|tools_prefix|>", "<|tools_suffix|>", _json),
            ("<tool_calls>", "</tool_calls>", _json),
            ("<|function_call|>", "<|message_sep|>", _json),
        )
    ),
    CallFormat(("<|/tool_call|>",), "<|tool_call|>", "<|/tool_call|>", _json),
    CallFormat(("<|tool_call|>",), "<|tool_call|>", "", _json),
    CallFormat(('{"name": function name, "parameters":',), '{"', "", _llama, alone=True),
    CallFormat(("<tool_call>", "tools"), "<tool_call>", "</tool_call>", _json),
)
"""The first one whose signs are all there is taken."""

THINKING = (
    ("[THINK]", "[/THINK]", ("[THINK]", "[/THINK]")),
    ("<seed:think>", "</seed:think>", ("<seed:think>", "</seed:think>")),
    ("<|START_THINKING|>", "<|END_THINKING|>", ("<|START_THINKING|>", "<|END_THINKING|>")),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant", ("<|channel|>commentary",)),
)
"""Markers of thoughts that mlx-lm does not look for, and what a template says that has them."""
