"""Reading tool calls back, strictly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill_fill_strict.schema import conforms

if TYPE_CHECKING:
    from mlxfill.tool_calls import CallProbe, CallWay
    from mlxfill_fill_strict.spans import Ids
    from mlxfill_fill_strict.tools import Tool

_MOST_ENDS = 16
"""End markers in a call's data that are tried as the call's end."""


class Verdict(Enum):
    """What is known of the text before a trigger."""

    PROVEN = auto()
    """It is closed reasoning and complete, valid calls, or nothing."""
    OPEN = auto()
    """A block, a call or a literal is not finished: nothing now."""
    NEVER = auto()
    """It is something else, whatever follows."""
    MALFORMED = auto()
    """It holds a call that does not parse or that the tools do not allow."""


@frozen
class Markers:
    """What a tokenizer says about calls and reasoning: markers, parser, and text of ids.

    ``start`` is "" where mlx-lm knows no parser; ``end`` is "" where only the next call or
    the end of the reply ends a call; ``think_start`` is "" for models that do not reason.
    """

    start: str
    end: str
    parse: Callable[..., list[dict[str, Any]]]
    think_start: str
    think_end: str
    think_end_ids: Ids
    decode: Callable[[Sequence[int]], str]

    @classmethod
    def of(cls, tokenizer: Any) -> Markers:  # noqa: ANN401 - mlx-lm's wrapper, untyped
        """Those of a tokenizer in mlx-lm's wrapper."""
        from mlxfill.tool_calls import read_calls

        def decode(ids: Sequence[int]) -> str:
            text: str = tokenizer.decode(
                list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
            return text

        return cls(
            start=(tokenizer.tool_parser and tokenizer.tool_call_start) or "",
            end=tokenizer.tool_call_end or "",
            parse=partial(read_calls, tokenizer),
            think_start=tokenizer.think_start or "",
            think_end=tokenizer.think_end or "",
            think_end_ids=tuple(tokenizer.think_end_tokens or ()),
            decode=decode,
        )

    @property
    def ends(self) -> tuple[str, ...]:
        """Text with which a complete reasoning block or call ends; "" where any text may."""
        return (self.end, self.think_end) if self.think_end else (self.end,)

    @property
    def texts(self) -> frozenset[str]:
        """The markers around a call."""
        return frozenset({self.start, self.end} - {""})

    def calls(self, text: str, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The calls in ``text``, which runs from a start marker to an end marker.

        Empty where it is anything else than calls of ``tools``.
        """
        return self.parse(text.removeprefix(self.start).removesuffix(self.end), tools)


@frozen
class CallReader:
    """Decides whether text is complete tool calls of one request.

    ``probe`` makes one in which calls are rendered back, now: a template may tell the time.
    ``markup``: pieces of the template's own text around a call.
    """

    markers: Markers
    probe: Callable[[], CallProbe]
    way: CallWay
    tools: Mapping[str, Tool]
    raw_tools: Sequence[Mapping[str, Any]]
    markup: frozenset[str]

    def verdict(self, text: str, *, exact: bool = False) -> Verdict:
        """What ``text`` is: nothing but complete calls, or else.

        :param exact: demand the template's own whitespace, too.
        """
        rest = text.strip()
        while rest:
            if not self.markers.start or not rest.startswith(self.markers.start):
                return Verdict.NEVER
            ends = [*islice(self._ends(rest), _MOST_ENDS)]
            end = next((end for end in ends if self._is_complete(rest[:end], exact=exact)), None)
            if end is None:
                return Verdict.MALFORMED if ends and self.markers.end else Verdict.OPEN
            if self._quotes_markup(rest[:end]):
                return Verdict.NEVER
            rest = rest[end:].strip()
        return Verdict.PROVEN

    def _ends(self, text: str) -> Iterator[int]:
        """Where the first call in ``text`` may end, the nearest place first."""
        marker = self.markers.end or self.markers.start
        at = text.find(marker, len(self.markers.start))
        while at >= 0:
            yield at + len(self.markers.end)
            at = text.find(marker, at + len(marker))
        if not self.markers.end:
            yield len(text)

    def _is_complete(self, text: str, *, exact: bool) -> bool:
        """Whether a parser reads valid calls from all of ``text``.

        Parsers skip what they do not understand, so the calls are rendered back: the same text
        must come out, whitespace aside.
        """
        calls = self.markers.calls(text, self.raw_tools)
        if not calls or not all(map(self._is_valid, calls)):
            return False
        made = [(call["name"], call["arguments"]) for call in calls]
        message = self.way.message(made, ids=[call.get("id") for call in calls])
        probe = self.probe()
        rendered = probe.calls_in(probe.reply(message))
        return rendered == text if exact else _squeezed(rendered) == _squeezed(text)

    def _is_valid(self, call: Mapping[str, Any]) -> bool:
        tool = self.tools.get(call["name"])
        try:
            return tool is not None and conforms(call["arguments"], tool.parameters)
        except (TypeError, AttributeError):  # deep inside, the schema is none
            return False

    def _quotes_markup(self, text: str) -> bool:
        """Whether an argument holds the template's own text, so that its end is in doubt."""
        return any(
            piece in value and value in text
            for call in self.markers.calls(text, self.raw_tools)
            for value in _strings(call["arguments"])
            for piece in self.markup
        )


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _strings(value: object) -> Iterator[str]:
    """All texts inside a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
