"""From tokens to text: streaming detokenization and stop strings.

A stop string fires at the token that completes it, also in the middle of a burst, and also in text
that a further token could still change; text that may be the beginning of one is held back until
that is decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill.tool_calls.sections import REASONING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mlxfill.tool_calls.sections import ReplySections


class TextStream:
    """The readable side of one request."""

    def __init__(
        self,
        tokenizer: TokenizerWrapper,
        stops: Sequence[str] = (),
        sections: ReplySections | None = None,
    ) -> None:
        """``tokenizer`` is mlx-lm's wrapper, as an engine has it.

        :param sections: of the reply; stop strings in its reasoning are then none.
        """
        self._detokenizer = tokenizer.detokenizer
        self._sections = sections
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """Text that is safe to show after ``token``; ``stopped`` once a stop string is complete."""
        self._detokenizer.add_token(token)
        text: str = self._detokenizer.last_segment
        return self._release(text) if self._stops else text

    def finish(self) -> str:
        """What is left at the end."""
        if self.stopped:
            return ""
        self._detokenizer.finalize()
        text: str = self._detokenizer.last_segment
        if not self._stops:
            return text
        text = self._release(text)
        held, self._held = self._held, ""
        return text if self.stopped else text + held

    def _release(self, text: str) -> str:
        self._held += text
        shown = ""
        while True:
            whole: str = self._held + self._detokenizer.pending
            found = [at for at in (whole.find(s) for s in self._stops) if at >= 0]
            if not found:
                keep = max(_overlap(self._held, s) for s in self._stops)
                return shown + self._show(len(self._held) - keep)
            before = self._show(min(found))
            if not self._thinks:
                self.stopped = True
                return shown + whole[: min(found)]
            shown += before + self._show(1)
            if not self._held:
                return shown

    def _show(self, count: int) -> str:
        """The first ``count`` of the characters that are held back."""
        shown, self._held = self._held[:count], self._held[count:]
        if self._sections is not None:
            self._sections.feed(shown)
        return shown

    @property
    def _thinks(self) -> bool:
        return self._sections is not None and self._sections.now == REASONING


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that begins ``stop``."""
    return next(
        (n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0
    )
