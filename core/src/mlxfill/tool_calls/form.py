"""How a chat template writes tool calls, found out by letting it write some.

Names, keys and values that no template knows mark the places; what stands between them is the
template's own.  Nothing is believed that mlx-lm's parser does not read back.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import define, evolve, field, frozen

from mlxfill.errors import TemplateError
from mlxfill.tool_calls.probe import CallProbe, shared_start
from mlxfill.tool_calls.rendering import renderer
from mlxfill.tool_calls.sections import calls_alone
from mlxfill.tool_calls.ways import KEY, NAME, TEXT, ways_to_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mlxfill.tool_calls.ways import Call, CallWay

OTHER_NAME, OTHER_KEY = "qjzx_tool", "wvyk"
NUMBER, OTHER_NUMBER = 7919, 8563
ODD_TEXT = 'kj"\\\n hq'
ODD = "{}[]()<>\"'`\\,:;=&|\n\t日"
"""Characters that may end a value for a parser, or that a template may write otherwise."""

SAMPLES: Mapping[str, tuple[tuple[Any, tuple[str, ...]], ...]] = {
    "string": ((TEXT, (TEXT,)),),
    "integer": ((NUMBER, (str(NUMBER),)),),
    "number": ((2.5, ("2.5",)),),
    "boolean": ((True, ("true", "True")), (False, ("false", "False"))),
    "null": ((None, ("null", "None")),),
    "array": (([TEXT, 7], (json.dumps([TEXT, 7]),)),),
    "object": (({OTHER_KEY: 7}, (json.dumps({OTHER_KEY: 7}),)),),
}
"""For each type of JSON schema values, and the forms of each that a grammar can be made of."""


@frozen
class ValueForm:
    """How a value of one type is written: ``opening``, the value as JSON, ``closing``.

    ``opening``: the text between the key and the value.
    ``closing``: the text after the value.
    ``words``: how true and false, or null, are written where these are the values.
    ``raw``: the value is a text as it is, not JSON.
    ``never``: characters that a raw text cannot hold.
    """

    opening: str
    closing: str
    words: tuple[str, ...] = ()
    raw: bool = False
    never: str = ""


@frozen
class CallForm:
    """The form of a model's tool calls, as ``call_form(tokenizer, options)`` returns it.

    A reply that makes calls is ``before``, a name, ``begin``, the arguments and ``end``.  Arguments
    are a JSON object or, where ``values`` says how, keys and values one by one.

    ``before``: the text before the first name.
    ``begin``: the text between a name and its arguments.
    ``end``: the text after the arguments of the last call.
    ``join``: the text between arguments and the next name; "" where a reply makes one call only.
    ``between``: the text between a value and the next key.
    ``bare_end``: the text after the name of a call without arguments; "" where none can be read.
    ``bare_join``: the text between that name and the next one.
    ``values``: how a value is written, by its type in a JSON schema; empty for JSON objects.
    ``spaced``: whether JSON has a space after commas and colons.
    """

    before: str
    begin: str
    end: str
    join: str
    between: str = ""
    bare_end: str = ""
    bare_join: str = ""
    values: Mapping[str, ValueForm] = field(factory=dict)
    spaced: bool = True

    NINE: ClassVar[str] = "\x00"
    """Stands in a piece for a call's id of nine letters and digits."""
    COUNT: ClassVar[str] = "\x01"
    """Stands in a piece for a call's number."""

    @property
    def after_value(self) -> str:
        """What follows every value, after its ``closing``."""
        return shared_start(self.between, self.end, *([self.join] if self.join else []))


def call_form(tokenizer: TokenizerWrapper, options: Mapping[str, Any]) -> CallForm:
    """The form of a model's calls; the template is asked once for the same ``options``.

    :param tokenizer: of a loaded engine.
    :param options: variables of the chat template.
    :raises TemplateError: it is none of those that are known here.
    """
    if not tokenizer.has_tool_calling:
        raise TemplateError("mlx-lm knows no parser for its calls")
    form = CallProbe(renderer(tokenizer), tokenizer, _tools("string"), options).once(_form)
    if form is None:
        raise TemplateError("its calls follow no form that is known")
    return form


def _form(probe: CallProbe) -> CallForm | None:
    probes = {kind: evolve(probe, tools=_tools(kind)) for kind in SAMPLES}
    for way in chain.from_iterable(ways_to_call()):
        writer = _Writer(probes, way)
        try:
            return _json_form(writer) or _keyed_form(writer)
        except TemplateError:
            continue
    return None


@define
class _Writer:
    """Lets a template write calls, in one way of putting them into a message."""

    probes: Mapping[str, CallProbe]
    way: CallWay

    def written(self, *calls: Call, kind: str = "string") -> str:
        """The template's text of calls, from its first marker to its last.

        :param kind: type of the first argument, as the tool declares it.
        :raises TemplateError: it refuses them, or they are not read back.
        """
        probe = self.probes[kind]
        text = probe.calls_in(probe.turn(self.way.message(calls)))
        given = [(name, dict(arguments)) for name, arguments in calls]
        if calls_alone(probe.tokenizer, probe.tools or (), text) != given:
            raise TemplateError("its calls are not read back")
        for index, (name, _) in enumerate(calls):
            text = self._without_id(text, self.way.id_of(name, index), name, index)
        return text

    def written_at_all(self, *calls: Call, kind: str = "string") -> list[str]:
        """What a template writes that it need not know."""
        try:
            return [self.written(*calls, kind=kind)]
        except TemplateError:
            return []

    def _without_id(self, text: str, given: str, name: str, index: int) -> str:
        if not given:
            return text
        stands = given.removesuffix(str(index)) + CallForm.COUNT if name in given else CallForm.NINE
        return text.replace(given, stands, 1)


def _tools(kind: str) -> list[dict[str, Any]]:
    properties = {KEY: {"type": kind}, OTHER_KEY: {"type": "integer"}}
    parameters = {"type": "object", "properties": properties, "required": []}
    return [
        {
            "type": "function",
            "function": {"name": name, "description": "Goes on.", "parameters": parameters},
        }
        for name in (NAME, OTHER_NAME)
    ]


# --- arguments in JSON --------------------------------------------------------------------


def _json_form(writer: _Writer) -> CallForm | None:
    """None where the arguments are not a JSON object."""
    one = writer.written((NAME, {KEY: TEXT}))
    place = _json_in(one, {KEY: TEXT})
    if place is None:
        return None
    head, end = one[: place[0]], one[place[1] :]
    before, begin = _apart(head, NAME)
    join = ""
    for text in writer.written_at_all((NAME, {KEY: TEXT}), (OTHER_NAME, {KEY: TEXT})):
        middle = text.removeprefix(head)
        stop = _json_in(middle, {KEY: TEXT})
        if middle != text and stop is not None and text.endswith(end):
            join, rest = _apart(middle[stop[1] :], OTHER_NAME)
            place = _json_in(rest, {KEY: TEXT})
            begin = _alike(begin, rest[: place[0]] if place else "")
    spaced = json.dumps({KEY: TEXT}) in one
    return CallForm(before, begin, end, join, spaced=spaced)


def _json_in(text: str, value: object) -> tuple[int, int] | None:
    """Where the JSON of a value stands in a text."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except ValueError:
            found, end = None, 0
        if found == value:
            return at, end
        at = text.find("{", at + 1)
    return None


# --- arguments key by key -----------------------------------------------------------------


def _keyed_form(writer: _Writer) -> CallForm:
    head, rest = _apart(writer.written((NAME, {KEY: NUMBER}), kind="integer"), KEY)
    before, begin = _apart(head, NAME)
    opening, end = _apart(rest, str(NUMBER))
    two = writer.written((NAME, {KEY: NUMBER, OTHER_KEY: OTHER_NUMBER}), kind="integer")
    between, _ = _apart(two.removeprefix(f"{head}{KEY}{opening}{NUMBER}"), OTHER_KEY)
    if two != f"{head}{KEY}{opening}{NUMBER}{between}{OTHER_KEY}{opening}{OTHER_NUMBER}{end}":
        raise TemplateError("two arguments are written unlike")
    join = bare_end = bare_join = ""
    for text in writer.written_at_all((NAME, {}), kind="integer"):
        bare_end = text.removeprefix(before + NAME) if text.startswith(before + NAME) else ""
    last = (OTHER_NAME, {KEY: OTHER_NUMBER})
    for text in writer.written_at_all((NAME, {KEY: NUMBER}), last, kind="integer"):
        join, rest = _apart(text.removeprefix(f"{head}{KEY}{opening}{NUMBER}"), OTHER_NAME)
        begin = _alike(begin, _apart(rest, KEY)[0])
    for text in writer.written_at_all((NAME, {}), last, kind="integer") if bare_end else ():
        bare_join, _ = _apart(text.removeprefix(before + NAME), OTHER_NAME)
    values = {}
    for kind in SAMPLES:
        with suppress(TemplateError):  # a type whose values cannot be told is left out
            values[kind] = _value_form(writer, kind, head + KEY, end)
    return CallForm(before, begin, end, join, between, bare_end, bare_join, values)


def _value_form(writer: _Writer, kind: str, head: str, end: str) -> ValueForm:
    """How values of one type are written between a key and the call's end."""

    def place_of(value: object) -> str:
        text = writer.written((NAME, {KEY: value}), kind=kind)
        if not (text.startswith(head) and text.endswith(end)):
            raise TemplateError("a value changes what stands around it")
        return text[len(head) : len(text) - len(end)]

    edges, words = set(), []
    for value, forms in SAMPLES[kind]:
        place = place_of(value)
        word = next((form for form in forms if form in place), None)
        if word is None:
            raise TemplateError(f"a {kind} is written in a way of its own")
        edges.add(_apart(place, word))
        words.append(word)
    if len(edges) > 1:
        raise TemplateError(f"values of type {kind} are written unlike")
    ((opening, closing),) = edges
    if kind != "string":
        fixed = tuple(words) if kind in {"boolean", "null"} else ()
        return ValueForm(opening, closing, fixed)
    if (opening[-1:], closing[:1]) == ('"', '"'):
        quoted = json.dumps(ODD_TEXT, ensure_ascii=False)
        if place_of(ODD_TEXT) == f"{opening[:-1]}{quoted}{closing[1:]}":
            return ValueForm(opening[:-1], closing[1:])

    def is_kept(text: str) -> bool:
        whole = f"{head}{opening}{text}{closing}{end}"
        return writer.written_at_all((NAME, {KEY: text}), kind=kind) == [whole]

    never = [c for c in ODD if not is_kept(f"kj{c}hq")]
    return ValueForm(opening, closing, raw=True, never="".join(never))


# --- both ---------------------------------------------------------------------------------


def _alike(first: str, second: str) -> str:
    """What stands in two calls alike but for their numbers, with ``COUNT`` for those."""
    if first == second:
        return first
    counted = re.sub("[0-9]+", CallForm.COUNT, first)
    if counted != re.sub("[0-9]+", CallForm.COUNT, second):
        raise TemplateError("two calls are written unlike")
    return counted


def _apart(text: str, mark: str) -> tuple[str, str]:
    """What stands before and after ``mark``, which is there once."""
    before, found, after = text.partition(mark)
    if not found or mark in after:
        raise TemplateError(f"{mark!r} does not stand there once")
    return before, after
