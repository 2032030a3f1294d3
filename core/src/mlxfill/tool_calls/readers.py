"""Readers of tool calls, one for each kind of form: strict, so that nothing a model said is lost.

mlx-lm's parsers skip what they do not understand, round numbers and guess types.  A reader here
takes the text between the markers and the request's tools, as those parsers do, and gives the calls
as the model wrote them; it raises ``ValueError`` where the text is anything but calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from mlxfill.argumenttypes import value_from
from mlxfill.tool_calls.jsontext import BETWEEN, DECODER, Found, as_call, json_calls, matched, some
from mlxfill.tool_calls.literals import Braced, python_calls

Read: TypeAlias = Callable[[str, Any], list[Any]]
"""As mlx-lm's parsers: the calls in what stands between the markers, and the request's tools."""

_JSON = re.compile(r"\s*(?:\{|\[\s*\{)")
"""How calls in JSON begin, and no other form."""


def headed(head: str, tail: str = "") -> Read:
    """Calls whose arguments in JSON stand between ``head``, which has a ``name``, and ``tail``.

    ``head`` may have the ``id`` of a call as well.
    """
    opening, closing = re.compile(head, re.DOTALL), re.compile(tail)

    def read(text: str, _: object = None) -> list[Any]:
        calls, rest = [], text.strip(BETWEEN)
        while rest:
            found = matched(opening, rest)
            arguments, at = DECODER.raw_decode(rest, found.end())
            given = {key: value for key, value in found.groupdict().items() if value}
            calls.append(as_call({"arguments": arguments, **given}))
            end = closing.match(rest, at)
            rest = rest[end.end() if end else at :].lstrip(BETWEEN)
        return some(calls)

    return read


def or_json(read: Read) -> Read:
    """The same, or calls in JSON where a model slips and writes those in the form's place."""

    def either(text: str, tools: Sequence[Mapping[str, Any]] | None = None) -> list[Any]:
        return (json_calls if _JSON.match(text) else read)(text, tools)

    return either


# --- tags around each argument ------------------------------------------------------------------


@frozen
class Keyed:
    """Calls whose arguments stand between tags as they are, one by one.

    ``opening`` has a ``name``, ``argument`` a ``key`` and a ``value`` (or ``data``); ``closing``
    ends the call.  Types come from the tools.
    """

    opening: re.Pattern[str]
    argument: re.Pattern[str]
    closing: re.Pattern[str]

    def __call__(self, text: str, tools: Sequence[Mapping[str, Any]] | None = None) -> list[Any]:
        """The calls in ``text``.  Raises ``ValueError`` where it is anything else."""
        calls, rest = [], text.strip()
        while rest:
            head = matched(self.opening, rest)
            schema, at, given = parameters_of(head["name"], tools), head.end(), Found()
            while (found := self.argument.match(rest, at)) is not None:
                key, at = found["key"].strip(), found.end()
                if key in given:
                    raise ValueError("a key stands there twice")
                given[key] = value_from(_value(found), _property(schema, key), schema)
            end = matched(self.closing, rest, at)
            calls.append({"name": head["name"], "arguments": given})
            rest = rest[end.end() :]
        return some(calls)


def keyed(opening: str, argument: str, closing: str) -> Read:
    """``Keyed`` from the texts of its patterns, each of which space may follow; or JSON."""
    parts = (re.compile(rf"{part}\s*", re.DOTALL) for part in (opening, argument, closing))
    return or_json(Keyed(*parts))


def _value(found: re.Match[str]) -> str:
    data = found.groupdict().get("data")
    return str(found["value"] if data is None else data)


def parameters_of(name: str, tools: Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any]:
    """The schema of a tool's arguments; an empty one where it has none."""
    functions = (tool.get("function") or {} for tool in tools or ())
    schemas = (each.get("parameters") for each in functions if each.get("name") == name)
    found = next(schemas, None)
    return found if isinstance(found, Mapping) else {}


def _property(schema: Mapping[str, Any], key: str) -> object:
    properties = schema.get("properties")
    known = properties.get(key) if isinstance(properties, Mapping) else None
    if known is None and isinstance(schema.get("additionalProperties"), Mapping):
        known = schema["additionalProperties"]
    return known


# --- Kimi K3 ------------------------------------------------------------------------------------


def counted(parse: Read, opening: str) -> Read:
    """mlx-lm's ``parse`` where it leaves none of the calls out that ``opening`` begins."""

    def read(text: str, tools: Sequence[Mapping[str, Any]] | None = None) -> list[Any]:
        found = parse(text, tools)
        if len(found) != text.count(opening):
            raise ValueError("a call cannot be read")
        return found

    return read


# --- in the place of mlx-lm's parsers -----------------------------------------------------------

_TAGGED = r"""["']?(?P<{0}>[^\s"'<>]+)["']?\s*>"""
FUNCTIONS = keyed(
    r"<function=\s*(?P<name>[^\s<>]+)\s*>",
    r"<parameter=\s*(?P<key>[^\s<>]+)\s*>\n?(?P<value>.*?)\n?</parameter>",
    r"</function>",
)
"""Qwen3-Coder's form, and Seed's."""
_KIMI = headed(
    r"(?:<\|tool_call_begin\|>)?\s*(?P<id>(?:functions\.)?(?P<name>.+?):\d+)\s*"
    r"<\|tool_call_argument_begin\|>\s*",
    r"\s*<\|tool_call_end\|>",
)
_MISTRAL = or_json(headed(r"(?:\[TOOL_CALLS\])?\s*(?P<name>[\w.-]+)\s*\[ARGS\]\s*"))


def _pairs(prefix: str = "") -> Read:
    key, value = f"{prefix}arg_key", f"{prefix}arg_value"
    return keyed(
        r"(?P<name>[^\s<>]+)",
        rf"<{key}>(?P<key>.*?)</{key}>\s*<{value}>(?P<value>.*?)</{value}>",
        r"(?:\Z)",
    )


def _invoked(prefix: str = "") -> Read:
    return keyed(
        rf"<{prefix}invoke\b[^>]*?\bname=" + _TAGGED.format("name"),
        rf"<{prefix}parameter\b[^>]*?\bname={_TAGGED.format('key')}"
        rf"(?P<value>.*?)</{prefix}parameter>",
        rf"</{prefix}invoke>",
    )


READERS: Mapping[str, Read] = {
    "function_gemma": Braced.of("<escape>"),
    "gemma4": Braced.of('<|"|>'),
    "glm47": _pairs(),
    "json_tools": json_calls,
    "kimi_k2": _KIMI,
    "longcat": _pairs("longcat_"),
    "minicpm5": keyed(
        r"(?:<function\s+name\s*=\s*)?" + _TAGGED.format("name"),
        r"<param\s+name\s*=\s*" + _TAGGED.format("key") + r"(?:\s*<!\[CDATA\[(?P<data>.*?)\]\]>\s*"
        r"|(?P<value>.*?))</param>",
        r"(?:</function>|\Z)",
    ),
    "minimax_m2": _invoked(),
    "mistral": _MISTRAL,
    "muse_spark": _invoked("atem:"),
    "pythonic": python_calls,
    "qwen3_coder": FUNCTIONS,
}
"""By the names of mlx-lm's parsers (``mlx_lm.tool_parsers``)."""
