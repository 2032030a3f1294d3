"""Markers in the text of messages and tools, read as text: only the template's own are control.

Where a content lands in the prompt is found out by the template itself, whatever it is: it is
applied again with a sign beside each marker of a content, and with the signs taken out the prompt
must be the same.  What it writes of its own accord has no sign.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from attrs import frozen

from mlxfill.errors import InputError, TemplateError
from mlxfill.tool_calls.messages import THOUGHTS

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from tokenizers import Tokenizer

CONTROL, TEXT = "control", "text"
IN_CONTENT = (CONTROL, TEXT)
"""What a marker in a content may be."""
_REPLY = ("content", *THOUGHTS)
"""Keys of an assistant's message whose text a model wrote, with the markup of a reply."""
_NAMING = ("arguments", "properties")
"""Keys whose tables have names of the caller's as their keys."""
_PRIVATE = 0xE000
"""Where Unicode's characters for private use begin."""
_WORD = re.compile(r"\w(?:.*\w)?", re.DOTALL)

Said = tuple[list[dict[str, Any]], list[Any], Mapping[str, Any]]
"""Messages, tools and options: what a template is given."""
Render = Callable[[list[dict[str, Any]], list[Any], Mapping[str, Any]], str]
"""Applies a template to them."""


class ContentMarkers:
    """Reads prompts of one tokenizer so that markers in contents are text."""

    def __init__(self, tokenizer: TokenizerWrapper) -> None:
        """``tokenizer`` is mlx-lm's wrapper."""
        self._tokenizer = tokenizer

    def encode(self, text: str, said: Said, template: str, render: Render) -> list[int]:
        """Ids of a prompt; the same as the tokenizer's where no content has a marker.

        :param text: what the template made of ``said``.
        :param template: its source, "" where there is none to look at.
        :param render: applies it.
        :raises InputError: a content has a marker, and nobody can tell it from the template's own.
        """
        ids = list(self._tokenizer.encode(text, add_special_tokens=False))
        every, special = self._markers(template)
        for before, parted in ((False, True), (True, True), (False, False), (True, False)):
            signs = _signs(text, before=before)
            noted = _noted(said, Note(every, signs, parted), Note(special, signs, parted))
            if noted == said:
                return ids
            try:
                places = signs.places(render(*noted))
            except TemplateError:
                continue
            if places.text == text:
                return self._read(text, ids, places, every)
        raise _undecided(said, every)

    def _markers(self, template: str) -> tuple[frozenset[str], frozenset[str]]:
        """All markers, and those that are special tokens."""
        wrapper = self._tokenizer
        own = {wrapper.think_start, wrapper.think_end, wrapper.tool_call_start}
        own.add(wrapper.tool_call_end)
        added = [token for token in self._added.values() if token.content.strip()]
        special = frozenset(token.content for token in added if token.special)
        others = (token.content for token in added if not token.special)
        return special.union(
            each
            for each in others
            if each in own or each in template or (each.startswith("<|") and each.endswith("|>"))
        ), special

    @cached_property
    def _added(self) -> dict[int, Any]:
        return dict(self._tokenizer.added_tokens_decoder)

    @cached_property
    def _names(self) -> dict[int, str]:
        return {token: added.content for token, added in self._added.items()}

    # --- reading ---------------------------------------------------------------------------

    def _read(
        self, text: str, ids: list[int], places: Places, markers: frozenset[str]
    ) -> list[int]:
        """The ids, but what stands between two markers of the template read as plain text.

        Markers part a text for a tokenizer: what it reads between two depends on nothing else.
        """
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        read = None if backend is None else backend.encode(text, add_special_tokens=False)
        if backend is None or read is None or read.ids != ids:
            raise InputError(
                "a message has a marker of this model in its text, and its tokenizer cannot read"
                f" that as text: leave it out, or say special_tokens_in_content={CONTROL!r}"
            )
        plain = PlainReader(backend, markers)
        found: list[int] = []
        between: list[int] = []
        start, foreign = 0, False
        for token, (first, end) in zip(read.ids, read.offsets, strict=True):
            name = self._names.get(token, "")
            is_marker = name in markers
            at = max(text.find(name, first, end), first)
            if is_marker and not places.hold(at, at + len(name)):
                found += plain.read(text[start:first], first=not start) if foreign else between
                found.append(token)
                between, start, foreign = [], end, False
            else:
                between.append(token)
                foreign |= is_marker
        return found + (plain.read(text[start:], first=not start) if foreign else between)


class PlainReader:
    """Reads parts of a prompt as a tokenizer does that knows none of the markers.

    It shares the vocabulary with ``backend``, and is made in milliseconds.
    """

    def __init__(self, backend: Tokenizer, markers: frozenset[str]) -> None:
        from tokenizers import AddedToken, Tokenizer

        made = Tokenizer(backend.model)
        # They are properties, which cannot be set to None.
        for part in ("normalizer", "pre_tokenizer"):
            if getattr(backend, part) is not None:
                setattr(made, part, getattr(backend, part))
        added = backend.get_added_tokens_decoder()
        made.add_tokens([added[token] for token in sorted(added)])
        self._ids = {made.token_to_id(added[token].content): token for token in added}
        special = [AddedToken(marker, special=True) for marker in sorted(markers)]
        made.add_special_tokens(special)
        made.encode_special_tokens = True
        self._edge = f"<{uuid4().hex}>"
        made.add_tokens([AddedToken(self._edge, normalized=False)])
        self._made = made

    def read(self, text: str, *, first: bool) -> list[int]:
        """Ids of a part; after a marker some tokenizers read otherwise than at the beginning."""
        ids = self._made.encode(text if first else self._edge + text, add_special_tokens=False).ids
        return [self._ids.get(token, token) for token in (ids if first else ids[1:])]


# --- signs -----------------------------------------------------------------------------------


@frozen
class Places:
    """A text that was written with signs: without them, and where they stood."""

    text: str
    whole: frozenset[int]
    inside: list[int]
    before: bool

    def hold(self, first: int, end: int) -> bool:
        """Whether a content has part in what stands from ``first`` to ``end``."""
        at = bisect_right(self.inside, first)
        parted = at < len(self.inside) and self.inside[at] < end
        return parted or (first if self.before else end) in self.whole


@frozen
class Signs:
    """Two characters that are in no text: beside a marker, and where one may be put together."""

    whole: str
    inside: str
    before: bool

    def places(self, written: str) -> Places:
        """Take the signs out."""
        clean: list[str] = []
        found: dict[str, list[int]] = {self.whole: [], self.inside: []}
        length = 0
        for part in re.split(f"([{self.whole}{self.inside}])", written):
            if part in found:
                found[part].append(length)
            else:
                clean.append(part)
                length += len(part)
        return Places("".join(clean), frozenset(found[self.whole]), found[self.inside], self.before)


def _signs(text: str, *, before: bool) -> Signs:
    unused = (sign for sign in map(chr, count(_PRIVATE)) if sign not in text)
    return Signs(next(unused), next(unused), before)


@frozen
class Note:
    """Puts signs into a content.  ``parted``: also where it may be a part of a marker only."""

    markers: frozenset[str]
    signs: Signs
    parted: bool

    def whole(self, text: str) -> str:
        """With a sign at each marker."""
        sign = self.signs.whole
        beside = rf"{sign}\g<0>" if self.signs.before else rf"\g<0>{sign}"
        return _pattern(self.markers).sub(beside, text) if self.markers else text

    def __call__(self, text: str) -> str:
        """The same, with a sign where the template may complete a marker."""
        bare = text.strip()
        if not self.parted or not bare or not self.markers:
            return self.whole(text)
        begins, ends, inner, longest = _parts(self.markers)
        lengths = range(1, min(longest, len(bare)) + 1)
        first = any(bare[:n] in ends for n in lengths) or bare in inner
        last = any(bare[-n:] in begins for n in lengths)
        sign = self.signs.inside
        marked = f"{sign if first else ''}{self.whole(bare)}{sign if last else ''}"
        return text.replace(bare, marked, 1)


@lru_cache(maxsize=8)
def _pattern(markers: frozenset[str]) -> re.Pattern[str]:
    """The longest marker at each place, as tokenizers find them."""
    return re.compile("|".join(map(re.escape, sorted(markers, key=len, reverse=True))))


@lru_cache(maxsize=8)
def _parts(markers: frozenset[str]) -> tuple[set[str], set[str], set[str], int]:
    """How markers begin, how they end, what of them holds all their letters; the longest."""
    begins = {marker[:n] for marker in markers for n in range(1, len(marker))}
    ends = {marker[n:] for marker in markers for n in range(1, len(marker))}
    inner = set()
    for marker in markers:
        word = _WORD.search(marker)
        if word is not None:
            first, last = word.span()
            inner |= {marker[a:b] for a in range(1, first + 1) for b in range(last, len(marker))}
    return begins, ends, inner, max(map(len, markers), default=0)


def _noted(said: Said, every: Note, special: Note) -> Said:
    """The same with signs: in what a model wrote, only at special tokens."""
    messages, tools, options = said
    made = [
        {
            key: every.whole(value)
            if key == "role" and isinstance(value, str)
            else _deep(value, special if _written(message, key) else every, names=key in _NAMING)
            for key, value in message.items()
        }
        for message in messages
    ]
    asked = {
        key: value if key == "chat_template" else _deep(value, every)
        for key, value in options.items()
    }
    return made, _deep(tools, every), asked


def _written(message: Mapping[str, Any], key: str) -> bool:
    return message.get("role") == "assistant" and key in _REPLY


def _deep(value: Any, note: Note, *, names: bool = False) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return note(value)
    if isinstance(value, Mapping):
        return {
            note(key) if names and isinstance(key, str) else key: _deep(
                each, note, names=names or key in _NAMING
            )
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_deep(each, note, names=names) for each in value]
    return value


def _undecided(said: Said, markers: frozenset[str]) -> InputError:
    messages, tools, _ = said
    places = {f"message {at}": message for at, message in enumerate(messages)} | {"a tool": tools}
    found = {where: _pattern(markers).search(str(each)) for where, each in places.items()}
    where, marker = next(((w, repr(m[0])) for w, m in found.items() if m), ("a message", "one"))
    return InputError(
        f"{where} has {marker} in its text, a marker of this model, and the chat template changes"
        f" what it writes there: leave it out, or say special_tokens_in_content={CONTROL!r}"
    )
