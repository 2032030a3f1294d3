"""Asks a chat template how it writes calls and plain replies, in token ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import evolve

from mlxfill import TemplateError
from mlxfill_fill_strict.attempts import PLAIN_REPLIES, Attempts
from mlxfill_fill_strict.reading import Markers
from mlxfill_fill_strict.slot import Slot
from mlxfill_fill_strict.spans import Ids, common_prefix, find
from mlxfill_fill_strict.tokenization import Tokenization

if TYPE_CHECKING:
    from mlxfill.tool_calls import CallProbe, CallWay

Call: TypeAlias = tuple[str, Mapping[str, Any]]
"""A tool's name and its arguments."""

NAME: Final = "zqxj_tool"
KEY: Final = "wvyk"
OTHER_KEY: Final = "uxzh"
VALUE: Final = "kjhq"
OTHER_VALUE: Final = "9 Qfw"
EXAMPLE: Final = (NAME, {KEY: VALUE})
"""A call that no tool has.  It shows the form of calls; none of its ids is ever emitted."""


class RefusedError(Exception):
    """The template does not write what it was asked for; the message says what."""


class Oracle:
    """One template's answers for the tools of one request.

    Ids of a reply begin with its first word after the reasoning block.  ``example``: what stands
    before the example call in a reply, and that call.
    """

    def __init__(self, probe: CallProbe) -> None:
        """:raises RefusedError: no way to call is rendered.

        :raises TemplateError: not even a user's turn is.
        """
        self.markers = Markers.of(probe.tokenizer)
        self.probe = probe
        self.opening = probe.opening
        self.eos_ids = frozenset(probe.tokenizer.eos_token_ids)
        self._ways = probe.accepted_ways()
        if not self._ways:
            raise RefusedError("the template renders no tool calls")
        self._tokens = Tokenization(probe.tokenizer, probe.prompt)
        self._slots: dict[object, Slot] = defaultdict(Slot)
        self._spellings: dict[int, str] = {}
        self._said: dict[str, Ids] = {}
        example = self._reply(self.way, EXAMPLE) or ""
        self._tokens.shorten([example])
        self.example = self._split(self._tokens.ids(example))

    @property
    def way(self) -> CallWay:
        """How the template wants calls to be put."""
        return self._ways[0]

    def leave_out_tools(self, examples: Sequence[Call]) -> None:
        """Render shorter prompts from now on, if ``examples`` stay the same without tools."""
        full, bare = self.probe, evolve(self.probe, tools=None)
        messages = [self.way.message([call]) for call in examples]
        with suppress(TemplateError):  # a template for tools alone
            if all(full.reply(message) == bare.reply(message) for message in messages):
                self.probe = bare

    # --- replies ----------------------------------------------------------------------

    def call(self, *calls: Call) -> Ids | None:
        """A reply that makes ``calls``; None where the template refuses them."""
        return self._ids(self._reply(self.way, *calls))

    def replies(self, name: str, attempts: Attempts, *after: Call) -> list[Ids | None]:
        """Replies that call a tool with each of the arguments, then ``after``.

        Call ids alternate, since a model may choose another; where it matters, arguments are put
        in both forms.
        """
        return [
            self._ids(text)
            for way in self._ways
            for text in self._texts(way, name, attempts, after)
        ]

    def shared(self, name: str, attempts: Attempts) -> Ids:
        """What calls of a tool begin with.

        :raises RefusedError: the template refuses them.
        """
        known = [ids for ids in self.replies(name, attempts) if ids]
        if len(known) < 2:  # noqa: PLR2004 - nothing to compare
            raise RefusedError(f"the template refuses calls of {name!r}")
        return common_prefix(known)

    def say(self, text: str) -> Ids:
        """A plain reply; empty where the template refuses it."""
        if text not in self._said:
            message = {"role": "assistant", **self.way.fields, "content": text}
            self._said[text] = self._ids(self.probe.reply(message)) or ()
        return self._said[text]

    @cached_property
    def plain(self) -> list[Ids]:
        """Plain replies that begin in every way.

        :raises RefusedError: the template refuses them.
        """
        found = [ids for text in PLAIN_REPLIES if (ids := self.say(text))]
        if len(found) < 2:  # noqa: PLR2004 - nothing to compare
            raise RefusedError("the template refuses plain replies")
        return found

    # --- ids and text -----------------------------------------------------------------------

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included."""
        return self.markers.decode(ids)

    def is_blank(self, token: int) -> bool:
        """Whether a token is nothing but whitespace."""
        return not self._spelling(token).strip()

    def has_letters(self, ids: Ids) -> bool:
        """Whether some token has a letter."""
        return any(char.isalpha() for token in ids for char in self._spelling(token))

    def _spelling(self, token: int) -> str:
        known = self._spellings.get(token)
        if known is None:
            known = self._spellings[token] = self.decode((token,))
        return known

    # --- asking ---------------------------------------------------------------------------------

    def _texts(
        self, way: CallWay, name: str, attempts: Attempts, after: Sequence[Call]
    ) -> list[str | None]:
        def ask(arguments: Mapping[str, Any], *, other_id: bool = False) -> str | None:
            return self._reply(way, (name, arguments), *after, other_id=other_id)

        texts = [ask(each, other_id=not i % 2) for i, each in enumerate(attempts.fixed)]
        texts.append(ask(attempts.example))
        if attempts.place:
            slot = self._slots[way.as_text, attempts.place, len(after)]
            texts += slot.fill(lambda text: ask(attempts.with_text(text)))
        return texts

    def _reply(self, way: CallWay, *calls: Call, other_id: bool = False) -> str | None:
        return self.probe.reply(way.message(calls, other_id=other_id))

    def _ids(self, reply: str | None) -> Ids | None:
        return None if reply is None else self._split(self._tokens.ids(reply))[1]

    def _split(self, ids: Ids) -> tuple[Ids, Ids]:
        """Up to the first word after the reasoning block, and from there on."""
        end = self.markers.think_end_ids
        at = find(ids, end) if end else -1
        start = at + len(end) if at >= 0 else 0
        while start < len(ids) and self.is_blank(ids[start]):
            start += 1
        return ids[:start], ids[start:]
