"""How a chat template writes tool calls, found out by letting it write some.

Names, keys and values that no template knows mark the places; what stands between them is the
template's own.  Nothing is believed that mlx-lm's parser does not read back.
"""

from __future__ import annotations

import json
import re
from itertools import product
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from attrs import define, field, frozen

from mlxfill_serve.callreading import read_back

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Call = tuple[str, Mapping[str, Any]]
    Samples = tuple[tuple[Any, tuple[str, ...]], ...]

USER = {"role": "user", "content": "Go on."}
NAME, OTHER_NAME = "zqxj_tool", "qjzx_tool"
KEY, OTHER_KEY = "uxzh", "wvyk"
TEXT = "kjhq"
NUMBER, OTHER_NUMBER = 7919, 8563
ODD_TEXT = 'kj"\\\n hq'
ODD = "{}[]()<>\"'`\\,:;=&|\n\t日"
"""Characters that may end a value for a parser, or that a template may write otherwise."""

MOST_KEPT = 32
"""Forms that are remembered for each tokenizer: variables of a template are a client's."""

NINE, COUNT = "\x00", "\x01"
"""Stand in a text for a part of a call's id: nine letters and digits, or its number."""
IDS = ("a1b2c3d4{index}", "functions.{name}:{index}", None)
"""Forms of ids that templates ask for."""
FIELDS: tuple[dict[str, Any], ...] = (
    {"content": ""},
    {"content": None},
    {"content": "", "reasoning_content": "Yes."},
    {"content": None, "reasoning_content": "Yes."},
)
"""What else a message holds that makes a call."""
SAMPLES: Mapping[str, Samples] = {
    "string": ((TEXT, (TEXT,)),),
    "integer": ((NUMBER, (str(NUMBER),)),),
    "number": ((2.5, ("2.5",)),),
    "boolean": ((True, ("true", "True")), (False, ("false", "False"))),
    "null": ((None, ("null", "None")),),
    "array": (([TEXT, 7], (json.dumps([TEXT, 7]),)),),
    "object": (({OTHER_KEY: 7}, (json.dumps({OTHER_KEY: 7}),)),),
}
"""For each type of JSON schema values, and the forms of each that a grammar can be made of."""


class UnknownFormError(Exception):
    """The template's calls follow no form that is known here."""


@frozen
class ValueForm:
    """A value of one type: ``opening``, the value, ``closing``.

    ``words``: how the values of its type are written that have one form only.  ``raw``: a text as
    it is, up to ``closing``, without the characters ``never``; else a value is JSON.
    """

    opening: str
    closing: str
    words: tuple[str, ...] = ()
    raw: bool = False
    never: str = ""


@frozen
class CallForm:
    """The pieces of a reply that makes calls.

    ``before`` NAME ``begin`` ARGUMENTS ``end``; between two calls ``join`` instead of ``end``, ""
    where the template makes one call only.  ARGUMENTS are JSON, or with ``values`` KEY VALUE, with
    ``between`` before each further KEY; a call without arguments is NAME ``bare_end``, or
    ``bare_join`` between calls, "" where it cannot be read.  ``spaced``: whether JSON has a space
    after commas and colons.
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


_known: WeakKeyDictionary[Any, dict[str, CallForm | UnknownFormError]] = WeakKeyDictionary()


def known_form(tokenizer: Any, options: Mapping[str, Any]) -> CallForm:  # noqa: ANN401
    """As ``learn``, which is asked once for each tokenizer and options."""
    kept = _known.setdefault(tokenizer, {})
    key = json.dumps(options, sort_keys=True, default=repr)
    found = kept.get(key)
    if found is None:
        try:
            found = learn(tokenizer, options)
        except UnknownFormError as error:
            found = error
        if len(kept) >= MOST_KEPT:
            kept.clear()
        kept[key] = found
    if isinstance(found, UnknownFormError):
        raise UnknownFormError(*found.args)
    return found


def learn(tokenizer: Any, options: Mapping[str, Any]) -> CallForm:  # noqa: ANN401 - mlx-lm's
    """The form of a model's calls.

    :param options: variables of the chat template.
    :raises UnknownFormError: it is none of those that are known here.
    """
    if not tokenizer.has_tool_calling:
        raise UnknownFormError("mlx-lm knows no parser for its calls")
    for ids, fields, as_text in product(IDS, FIELDS, (False, True)):
        writer = Writer(tokenizer, options, ids, fields, as_text)
        try:
            return _json_form(writer) or _keyed_form(writer)
        except UnknownFormError:
            continue
    raise UnknownFormError("its calls follow no form that is known")


@define
class Writer:
    """Lets a template write calls, in one way of putting them into a message."""

    tokenizer: Any
    options: Mapping[str, Any]
    ids: str | None
    fields: Mapping[str, Any]
    as_text: bool

    def written(self, *calls: Call, kind: str = "string") -> str:
        """The template's text of calls, from its first marker to its last.

        :param kind: type of the first argument, as the tool declares it.
        :raises UnknownFormError: it refuses them, or mlx-lm does not read them back.
        """
        message = {"role": "assistant", **self.fields, "tool_calls": self._items(calls)}
        tools = [_tool(name, kind) for name in (NAME, OTHER_NAME)]
        prompt = self._rendered([USER], tools)
        whole = self._rendered([USER, message], tools)
        text = self._marked(whole[len(shared_start(prompt, whole)) :])
        if read_back(self.tokenizer, tools, text) != [(name, dict(args)) for name, args in calls]:
            raise UnknownFormError("mlx-lm does not read back what the template writes")
        for index, (name, _) in enumerate(calls):
            text = self._without_id(text, name, index)
        return text

    def _items(self, calls: Sequence[Call]) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        for index, (name, arguments) in enumerate(calls):
            given = json.dumps(arguments, ensure_ascii=False) if self.as_text else dict(arguments)
            item = {"type": "function", "function": {"name": name, "arguments": given}}
            call_id = self.ids and {"id": self.ids.format(name=name, index=index)}
            items.append({**(call_id or {}), **item})
        return items

    def _rendered(self, messages: list[Any], tools: list[Any]) -> str:
        options = {**self.options, "add_generation_prompt": False, "tokenize": False}
        try:
            return str(self.tokenizer.apply_chat_template(messages, tools=tools, **options))
        except Exception as error:
            raise UnknownFormError("the template refuses calls") from error

    def _marked(self, reply: str) -> str:
        start, end = self.tokenizer.tool_call_start, self.tokenizer.tool_call_end
        first, last = reply.find(start), reply.rfind(end)
        if first < 0 or last < first:
            raise UnknownFormError("the template writes calls without mlx-lm's markers")
        if end:
            return reply[first : last + len(end)]
        return reply[first:].rstrip().removesuffix(self.tokenizer.eos_token or "")

    def _without_id(self, text: str, name: str, index: int) -> str:
        if self.ids is None:
            return text
        given = self.ids.format(name=name, index=index)
        is_nine = "{name}" not in self.ids
        stands = NINE if is_nine else given.removesuffix(str(index)) + COUNT
        return text.replace(given, stands, 1)


def _tool(name: str, kind: str) -> dict[str, Any]:
    properties = {KEY: {"type": kind}, OTHER_KEY: {"type": "integer"}}
    parameters = {"type": "object", "properties": properties, "required": []}
    function = {"name": name, "description": "Goes on.", "parameters": parameters}
    return {"type": "function", "function": function}


# --- arguments in JSON --------------------------------------------------------------------


def _json_form(writer: Writer) -> CallForm | None:
    """None where the arguments are not a JSON object."""
    one = writer.written((NAME, {KEY: TEXT}))
    place = _json_in(one, {KEY: TEXT})
    if place is None:
        return None
    head, end = one[: place[0]], one[place[1] :]
    before, begin = _apart(head, NAME)
    join = ""
    for text in _optional(writer, (NAME, {KEY: TEXT}), (OTHER_NAME, {KEY: TEXT})):
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


def _keyed_form(writer: Writer) -> CallForm:
    def one(*calls: Call, kind: str = "integer") -> str:
        return writer.written(*calls, kind=kind)

    single = one((NAME, {KEY: NUMBER}))
    head, rest = _apart(single, KEY)
    before, begin = _apart(head, NAME)
    opening, end = _apart(rest, str(NUMBER))
    two = one((NAME, {KEY: NUMBER, OTHER_KEY: OTHER_NUMBER}))
    between, _ = _apart(two.removeprefix(f"{head}{KEY}{opening}{NUMBER}"), OTHER_KEY)
    if two != f"{head}{KEY}{opening}{NUMBER}{between}{OTHER_KEY}{opening}{OTHER_NUMBER}{end}":
        raise UnknownFormError("two arguments are written unlike")
    join = bare_end = bare_join = ""
    for text in _optional(writer, (NAME, {}), kind="integer"):
        bare_end = text.removeprefix(before + NAME) if text.startswith(before + NAME) else ""
    last = (OTHER_NAME, {KEY: OTHER_NUMBER})
    for text in _optional(writer, (NAME, {KEY: NUMBER}), last, kind="integer"):
        join, rest = _apart(text.removeprefix(f"{head}{KEY}{opening}{NUMBER}"), OTHER_NAME)
        begin = _alike(begin, _apart(rest, KEY)[0])
    for text in _optional(writer, (NAME, {}), last, kind="integer") if bare_end else ():
        bare_join, _ = _apart(text.removeprefix(before + NAME), OTHER_NAME)
    values = dict(_value_forms(writer, head + KEY, end))
    return CallForm(before, begin, end, join, between, bare_end, bare_join, values)


def _value_forms(writer: Writer, head: str, end: str) -> Iterator[tuple[str, ValueForm]]:
    """How values of each type are written; types that cannot be told are left out."""
    for kind, samples in SAMPLES.items():
        try:
            yield kind, _value_form(writer, kind, samples, head, end)
        except UnknownFormError:
            continue


def _value_form(
    writer: Writer,
    kind: str,
    samples: Samples,
    head: str,
    end: str,
) -> ValueForm:
    def place_of(value: object) -> str:
        text = writer.written((NAME, {KEY: value}), kind=kind)
        if not (text.startswith(head) and text.endswith(end)):
            raise UnknownFormError("a value changes what stands around it")
        return text[len(head) : len(text) - len(end)]

    edges, words = set(), []
    for value, forms in samples:
        place = place_of(value)
        word = next((form for form in forms if form in place), None)
        if word is None:
            raise UnknownFormError(f"a {kind} is written in a way of its own")
        edges.add(_apart(place, word))
        words.append(word)
    if len(edges) > 1:
        raise UnknownFormError(f"values of type {kind} are written unlike")
    ((opening, closing),) = edges
    if kind != "string":
        fixed = tuple(words) if kind in {"boolean", "null"} else ()
        return ValueForm(opening, closing, fixed)
    if (opening[-1:], closing[:1]) == ('"', '"'):
        quoted = json.dumps(ODD_TEXT, ensure_ascii=False)
        if place_of(ODD_TEXT) == f"{opening[:-1]}{quoted}{closing[1:]}":
            return ValueForm(opening[:-1], closing[1:])
    never = [c for c in ODD if not _is_kept(place_of, f"kj{c}hq", opening, closing)]
    return ValueForm(opening, closing, raw=True, never="".join(never))


def _is_kept(place_of: Any, text: str, opening: str, closing: str) -> bool:  # noqa: ANN401
    """Whether a template writes a text as it is, and mlx-lm reads it."""
    try:
        return bool(place_of(text) == f"{opening}{text}{closing}")
    except UnknownFormError:
        return False


# --- both ---------------------------------------------------------------------------------


def _alike(first: str, second: str) -> str:
    """What stands in two calls alike but for their numbers, with ``COUNT`` for those."""
    if first == second:
        return first
    counted = re.sub("[0-9]+", COUNT, first)
    if counted != re.sub("[0-9]+", COUNT, second):
        raise UnknownFormError("two calls are written unlike")
    return counted


def shared_start(*texts: str) -> str:
    """What all of them begin with."""
    first, last = min(texts), max(texts)  # whatever stands between these begins so, too
    size = next((at for at, c in enumerate(first) if last[at : at + 1] != c), len(first))
    return first[:size]


def _apart(text: str, mark: str) -> tuple[str, str]:
    """What stands before and after ``mark``, which is there once."""
    before, found, after = text.partition(mark)
    if not found or mark in after:
        raise UnknownFormError(f"{mark!r} does not stand there once")
    return before, after


def _optional(writer: Writer, *calls: Call, kind: str = "string") -> list[str]:
    """What a template writes that it need not know."""
    try:
        return [writer.written(*calls, kind=kind)]
    except UnknownFormError:
        return []
