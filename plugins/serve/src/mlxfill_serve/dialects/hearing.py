"""A body as a client of another server sends it, in our words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from mlxfill_serve.bodies import ChatBody, CompletionBody
from mlxfill_serve.dialects.nested import in_vain
from mlxfill_serve.dialects.table import FIELDS, WRAPPERS, Field
from mlxfill_serve.errors import ApiError
from mlxfill_serve.responses.bodies import ResponsesBody

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel

HEADER = "X-Mlxfill-Ignored"
"""Names the fields of a request that nothing has heeded."""
MOST = 32
"""Names in the header."""

PLACES: dict[type[BaseModel], dict[str, str]] = {
    ChatBody: {},
    CompletionBody: {"include_reasoning": "", "reasoning_effort": "", "chat_template_kwargs": ""},
    ResponsesBody: {
        "max_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "response_format": "text.format",
        "include_reasoning": "",
        "logprobs": "",
    },
}
"""Where fields of chat stand in other bodies; "": nowhere."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_BY_NAME = {each.name: each for each in FIELDS}
_PREFIXES = [each for each in FIELDS if each.name.endswith("*")]
_TOLD = Field("", told=True)
NAMES = frozenset(_BY_NAME)


@frozen
class Heard:
    """A body in our words.  ``words``: what the client has called fields of ours."""

    body: dict[str, Any]
    ignored: tuple[str, ...] = ()
    words: Mapping[str, str] = field(factory=dict)

    def read_as(self, body: BaseModel) -> Heard:
        """The same, once it is known what each of its objects is.

        :raises ApiError: 400 for what cannot be left out.
        """
        found = []
        for place in in_vain(body):
            name, dot, inner = place.partition(".")
            found.append(f"{self.words.get(name, name)}{dot}{inner}")
        return self.and_ignored(found)

    def and_ignored(self, names: Iterable[str]) -> Heard:
        """The same, with more that nothing heeds."""
        return evolve(self, ignored=_listed([*self.ignored, *names]))

    def in_words_of_client(self, error: ApiError) -> ApiError:
        """The same error about the fields that the client has sent."""
        for ours, theirs in self.words.items():
            if error.param is not None and error.param.split(".")[0] == ours:
                error.param = theirs
                error.message = re.sub(rf"\b{ours}\b", theirs, error.message)
        return error


def meant(name: str) -> str:
    """Our field that one of another server stands for, "" for none."""
    row = _row(name)
    return row.target if row is not None else ""


def hear(given: Mapping[str, Any], kind: type[BaseModel], *, strict: bool = False) -> Heard:
    """Put what other servers know into the words of ``kind``; the rest stays as it is.

    :param strict: leave what this server alone does not know, to be refused.
    :raises ApiError: 400 for what cannot be left out, and for fields that contradict each other.
    """
    hearing = _Hearing(kind, strict)
    ours = set(kind.model_fields)
    wrapped = [name for name in WRAPPERS if name in given and not strict]
    for name, value in given.items():
        if name not in wrapped and name in ours and value is not None:
            hearing.own(name, value)
    for name, value in given.items():
        if name not in ours and name not in wrapped:
            hearing.take(name, name, value)
    for wrapper in wrapped:
        for name, value in _inside(wrapper, given[wrapper]).items():
            hearing.inner(name, f"{wrapper}.{name}", value)
    return Heard(hearing.body, _listed(hearing.ignored), hearing.words)


def _listed(names: Iterable[str]) -> tuple[str, ...]:
    """The first of different names."""
    return tuple(dict.fromkeys(name for name in names if _NAME.fullmatch(name)))[:MOST]


def _inside(name: str, value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ApiError(400, f"{name} must be an object", param=name, code="invalid_value")
    return value


@define
class _Hearing:
    """Builds a body, and knows under which name each of its fields came."""

    kind: type[BaseModel]
    strict: bool
    body: dict[str, Any] = field(factory=dict)
    ignored: list[str] = field(factory=list)
    words: dict[str, str] = field(factory=dict)
    _named: dict[str, str] = field(factory=dict)

    def own(self, name: str, value: Any) -> None:  # noqa: ANN401
        """A field of ours."""
        row = _BY_NAME.get(name)
        place = self._place(row.target) if row is not None and row.convert is not None else ""
        if row is not None and place and ("." not in place or row.inside):
            self._heed(row, name, value)
        else:
            self._set(name, value, name)

    def take(self, name: str, label: str, value: Any) -> None:  # noqa: ANN401
        """A field that may be one of another server's."""
        row = _row(name)
        if row is not None and value is None:
            return
        if row is None or (self.strict and not row.remedy):
            self.body[label] = value  # nobody knows it, which is told
        else:
            self._heed(row, label, value)

    def _heed(self, row: Field, label: str, value: Any) -> None:  # noqa: ANN401
        """A field that is known."""
        if row.is_neutral(value):
            return
        row.check(label)
        if row.inside and isinstance(value, dict):
            known = {each.name: each for each in row.inside}
            for key, inner in value.items():
                self._heed(known.get(key, _TOLD), f"{label}.{key}", inner)
        elif row.convert is not None:
            self._put(row, label, value)
        elif row.told:
            self.ignored.append(label)

    def inner(self, name: str, label: str, value: Any) -> None:  # noqa: ANN401
        """A field in an object whose fields count as if they stood in the body."""
        if name in self.kind.model_fields and value is not None:
            self._set(name, value, label)
        else:
            self.take(name, label, value)

    def _put(self, row: Field, label: str, value: Any) -> None:  # noqa: ANN401
        assert row.convert is not None  # noqa: S101 - the caller looked
        for target, converted in row.convert(value, label):
            place = "" if target is None else self._place(target)
            if target is None:
                self.ignored.append(str(converted))
            elif not place:
                self.ignored.append(label)
            elif place == "chat_template_kwargs" and isinstance(converted, dict):
                for key, inner in converted.items():
                    self._set(f"{place}.{key}", inner, f"{label}.{key}")
            else:
                self._set(place, _in_place(place, converted), label)

    def _place(self, target: str) -> str:
        """Where a field of chat stands in this body, "" for nowhere."""
        return PLACES[self.kind].get(target.split(".", maxsplit=1)[0], target)

    def _set(self, place: str, value: Any, label: str) -> None:  # noqa: ANN401
        """Set a field, or a key of one, that nobody has set to anything else.

        :raises ApiError: somebody has.
        """
        name, _, key = place.partition(".")
        held: Any = self.body
        if key:
            held = self.body.get(name)
            if held is not None and not isinstance(held, dict):
                return  # of a wrong type, which is told
            held = self.body[name] = dict(held or {})
        at = key or name
        if held.get(at) is not None and not _alike(held[at], value):
            first = self._named.get(place, place)
            said = f"{first} and {label} contradict each other: give one of them"
            raise ApiError(400, said, param=label, code="invalid_value")
        held[at] = value
        self._named.setdefault(place, label)
        if not label.startswith(name) and _NAME.fullmatch(label):
            self.words.setdefault(name, label)


def _row(name: str) -> Field | None:
    found = _BY_NAME.get(name)
    return found or next((row for row in _PREFIXES if name.startswith(row.name[:-1])), None)


def _in_place(place: str, value: Any) -> Any:  # noqa: ANN401
    """A format as the Responses API has it."""
    if place != "text.format" or not isinstance(value, dict) or "json_schema" not in value:
        return value
    return {"type": "json_schema", **value["json_schema"]}


def _alike(one: object, other: object) -> bool:
    """Whether two values say the same; true is no 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
