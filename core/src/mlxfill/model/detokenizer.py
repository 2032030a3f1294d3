"""From tokens to text, one at a time: the text that ``tokenizer.decode`` makes of all together.

mlx-lm's quick detokenizers take the first space away, and each knows one kind of decoder.  This one
asks ``tokenizer.decode`` about the newest tokens, as text-generation-inference does and vLLM did.
"""

from __future__ import annotations

import copy
import re
from functools import partial
from typing import TYPE_CHECKING

from mlx_lm.tokenizer_utils import StreamingDetokenizer

from mlxfill.tokens import ids_by_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlx_lm.tokenizer_utils import TokenizerWrapper

PART = "\N{REPLACEMENT CHARACTER}"
"""What bytes become that are no character, or not yet."""
WINDOW = 4
"""Tokens that are decoded again with each new one, at most, unless text is held back."""
_OPEN = re.compile(r"(?:[ ']| n| '[vr])\Z")
"""An end of text from which transformers' clean-up may take a space when more has come."""


def with_exact_text(tokenizer: TokenizerWrapper) -> TokenizerWrapper:
    """The same tokenizer with detokenizers whose text is that of ``decode``."""
    made = copy.copy(tokenizer)
    made._detokenizer = Detokenizer(tokenizer)  # noqa: SLF001 - mlx-lm's constructor alone sets it
    return made


class Detokenizer(StreamingDetokenizer):
    """mlx-lm's interface.  ``pending``: text behind ``text`` that the next token may change."""

    def __init__(self, tokenizer: TokenizerWrapper) -> None:
        """Nothing is read yet."""
        self._decode = _quickly(tokenizer)
        # A run of these is one text: a byte that is part of no character spoils those before it.
        names = {f"<0x{byte:02X}>" for byte in range(256)}
        self._bytes = frozenset(ids_by_name(tokenizer, names).values())
        self._cleans = bool(getattr(tokenizer, "clean_up_tokenization_spaces", False))
        self.reset()

    def reset(self) -> None:
        """Begin a new text."""
        self.tokens: list[int] = []
        self.offset = 0
        self.pending = ""
        self._parts: list[str] = []
        self._window: list[int] = []
        self._shown, self._seen = 0, ""

    @property
    def text(self) -> str:  # type: ignore[override]
        """What stays as it is, whatever follows."""
        return "".join(self._parts)

    @property
    def last_segment(self) -> str:
        """What has come to ``text`` since this was read last."""
        segment = "".join(self._parts[self.offset :])
        self.offset = len(self._parts)
        return segment

    def add_token(self, token: int) -> None:
        """Read on."""
        self.tokens.append(token)
        self._window.append(token)
        text: str = self._decode(self._window)
        if text == self._seen:  # an id that no text has: as if it were not there
            return
        self._seen = text
        known = text.rstrip(PART)
        if token in self._bytes or (self._cleans and _OPEN.search(known)):
            self.pending = known[self._shown :]
            return
        self._show(known)
        self.pending = ""
        if len(self._window) >= WINDOW and known == text:
            alone = self._decode([token])
            if alone:  # else the next token would be decoded as a first one is
                self._window, self._shown, self._seen = [token], len(alone), alone

    def finalize(self) -> None:
        """Nothing follows: what was held back is text."""
        if self._window:
            self._show(self._decode(self._window))
        self.pending = ""

    def _show(self, text: str) -> None:
        if len(text) > self._shown:
            self._parts.append(text[self._shown :])
            self._shown = len(text)


def _quickly(tokenizer: TokenizerWrapper) -> Callable[[list[int]], str]:
    """``decode``, without what transformers does around it where that changes nothing."""
    from transformers import PreTrainedTokenizerFast as Plain

    kind = type(tokenizer._tokenizer)  # noqa: SLF001 - what mlx-lm's wrapper wraps
    alike = all(getattr(kind, name, None) is getattr(Plain, name) for name in ("decode", "_decode"))
    if not alike or tokenizer.clean_up_tokenization_spaces:
        return tokenizer.decode  # type: ignore[no-any-return]
    return partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=False)
