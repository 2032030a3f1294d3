"""The readable side of one request: tokens to pieces of text, and the record of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import mlx.core as mx

from mlxfill.model.reading import ids as ids_of
from mlxfill.model.reading import one_float
from mlxfill.request.results import Piece
from mlxfill.request.text import TextStream
from mlxfill.tool_calls.sections import ReplySections, end_of_prompt

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mlxfill.contracts import Request
    from mlxfill.decode.sequence import Emitted
    from mlxfill.request.options import Options


class Reply:
    """Grows by one token at a time.

    ``stopped``: a stop string is complete; tokens after it are not wanted.
    """

    def __init__(self, request: Request, options: Options) -> None:
        """Nothing is read yet."""
        self.tokens: list[int] = []
        self.origins: list[str] = []
        self.logprobs: list[float] = []
        self.top_logprobs: list[list[tuple[int, float]]] = []
        self._options = options
        self._parts: list[str] = []
        tokenizer: TokenizerWrapper = request.tokenizer
        sections = None
        if options.stop and tokenizer.has_thinking and not options.stop_in_reasoning:
            asked = end_of_prompt(tokenizer, request.prompt_ids, request.prompt_text)
            sections = ReplySections(tokenizer, asked, tools=False)
        self._stream = TextStream(tokenizer, options.stop, sections)

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete."""
        return self._stream.stopped

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._parts)

    def add(self, token: Emitted) -> Piece:
        """Record a token; answers what became readable with it."""
        options, logprobs = self._options, token.logprobs
        piece = Piece(self._stream.add(token.token), token.token, token.origin)
        self.tokens.append(token.token)
        self.origins.append(token.origin)
        self._parts.append(piece.text)
        if logprobs is not None and options.logprobs:
            piece.logprobs = logprobs
            self.logprobs.append(one_float(logprobs[token.token]))
        if logprobs is not None and options.top_logprobs:
            piece.top_logprobs = top(logprobs, options.top_logprobs)
            self.top_logprobs.append(piece.top_logprobs)
        return piece

    def finish(self) -> str:
        """Text that was held back until the end."""
        rest = self._stream.finish()
        self._parts.append(rest)
        return rest


def top(logprobs: mx.array, count: int) -> list[tuple[int, float]]:
    """The ``count`` most likely ids of a ``[V]`` row with their log-probabilities, best first."""
    count = min(count, logprobs.shape[0])
    best = mx.argpartition(-logprobs, kth=count - 1)[:count]
    values = cast("list[float]", logprobs[best].tolist())
    pairs = zip(ids_of(best), values, strict=True)
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
