"""The tokens of one model as llguidance wants them, and the grammars compiled for them.

llguidance (https://github.com/guidance-ai/llguidance) does the parsing: derivative-based lexing
and an Earley parser, over a trie of the vocabulary.
"""

from __future__ import annotations

import json
import re
from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mlxfill import InputError
from mlxfill_constrain.deep import deeply
from mlxfill_constrain.finite import forbid_endless
from mlxfill_constrain.metaschema import check_schema
from mlxfill_constrain.names import settle_names
from mlxfill_constrain.normal import combines, normalize
from mlxfill_constrain.numbers import settle_numbers
from mlxfill_constrain.parts import rewritten

if TYPE_CHECKING:
    from collections.abc import Callable

    from llguidance import LLMatcher, LLTokenizer

    from mlxfill import Schema
    from mlxfill_constrain.settings import Whitespace

GRAMMARS_KEPT = 64
KINDS_KEPT = 4
"""Sets of ids that end a reply, of one tokenizer, for which its vocabulary is kept."""
LEXER_FUEL = 250_000
"""llguidance's measure of work on regular expressions: about a second, and 100 MB."""
REASON_LENGTH = 300
NOTHING = "no text satisfies it"
ESCAPES = 'nrbtf\\"'
"""What may follow a backslash in text."""
_CONTROL = re.compile(r"\\u00[01]|\x7f|\\\\[xucpP0]|\[:")
"""In JSON, a control character or a pattern that may be about one, which has no other spelling."""
SPACE = " "
_AFTER_SPACE = {"regex": "[ ](?:{})", "lark": 'start: " " %lark {{\n{}\n}}\n'}
"""What a reply must be of which the first space is left out."""
SEPARATORS: dict[Whitespace, dict[str, Any]] = {
    "spaced": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
    "compact": {"whitespace_flexible": False},
    "flexible": {"whitespace_flexible": True},
}
"""llguidance's options; a schema's own ``x-guidance`` goes before them."""

_known: WeakKeyDictionary[Any, dict[frozenset[int], Vocabulary]] = WeakKeyDictionary()


class Vocabulary:
    """One tokenizer.  Made once (seconds for 150,000 tokens); compiled grammars are kept.

    ``eos``: ids that llguidance takes for the end and for nothing else.
    """

    def __init__(self, tokenizer: LLTokenizer, decode: Callable[[list[int]], str]) -> None:
        """``decode``: ids of a reply to its text."""
        self._tokenizer = tokenizer
        ids = self.spelled(f"{SPACE}a".encode())
        self._strips = len(ids) > 0 and decode(ids) == "a"
        self.eos = frozenset(tokenizer.eos_tokens)
        self._compiled = lru_cache(maxsize=GRAMMARS_KEPT)(self._compile)

    @classmethod
    def of(cls, tokenizer: Any, eos_ids: frozenset[int]) -> Vocabulary:  # noqa: ANN401
        """That of mlx-lm's ``tokenizer`` with these ids as its end.

        :raises InputError: it is none of the tokenizers that llguidance can read.
        """
        kinds = _known.setdefault(tokenizer, {})
        known = kinds.get(eos_ids)
        if known is None:
            known = cls(_read(tokenizer, eos_ids), tokenizer.decode)
            for oldest in list(kinds)[: len(kinds) + 1 - KINDS_KEPT]:
                kinds.pop(oldest, None)  # a request says what ends it: there may be many
            kinds[eos_ids] = known
        return known

    def matcher(self, schema: Schema, whitespace: Whitespace, *, opens: bool = False) -> LLMatcher:
        """A fresh matcher, its grammar compiled when it is first seen (milliseconds).

        :param opens: whether nothing of the reply stands before it: decoders of SentencePiece leave
            out a space there, and so there is to be one more where a text may begin with one.
        :raises InputError: the schema is wrong, uses what llguidance does not know, is too large,
            or no text satisfies it.
        """
        return self._compiled(schema, whitespace, opens and self._strips).deep_copy()

    def _matching(self, kind: str, text: str) -> LLMatcher:
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(verbose_errors=False, initial_lexer_fuel=LEXER_FUEL)
        grammar = _grammar(kind, text)
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits)
        check(matcher)
        return matcher

    def spelled(self, text: bytes) -> list[int]:
        """The longest tokens that make up a text, without special ones."""
        return self._tokenizer.greedy_tokenize(text.decode(errors="ignore"))

    def _compile(self, schema: Schema, whitespace: Whitespace, stripped: bool) -> LLMatcher:
        return deeply(lambda: self._compiled_here(schema, whitespace, stripped=stripped))

    def _compiled_here(
        self, schema: Schema, whitespace: Whitespace, *, stripped: bool
    ) -> LLMatcher:
        text, finite = _settled(schema, self._tokenizer, whitespace)
        matcher = self._matching(schema.kind, text)
        may_begin = schema.kind != "json" and matcher.validate_tokens(self.spelled(SPACE.encode()))
        if stripped and may_begin:
            matcher = self._matching(schema.kind, _AFTER_SPACE[schema.kind].format(text))
        if not finite:
            raise _refusal(NOTHING)
        # Some dead ends, and too much work, show only now; what is computed here, every copy has.
        first = matcher.deep_copy()
        forced = first.compute_ff_tokens()
        first.consume_tokens(forced[: first.validate_tokens(forced)])
        first.compute_bitmask()
        check(first)
        return matcher


def check(matcher: LLMatcher) -> None:
    """Raise ``InputError`` with llguidance's reason when it gave up."""
    if matcher.is_error():
        raise _refusal(matcher.get_error())


def _refusal(said: str) -> InputError:
    said, _, _ = said.partition("<backtrace>")
    reason = " ".join(said.split()).removesuffix(" <non-verbose/>")
    if reason.startswith("NoExtension"):
        reason = NOTHING
    if len(reason) > REASON_LENGTH:
        reason = f"{reason[:REASON_LENGTH]}..."
    if reason.startswith("recursion limit"):
        reason = "it is nested more than about 60 objects deep: flatten it, or name parts in $defs"
    return InputError(f"schema cannot be used: {reason}")


def _settled(schema: Schema, tokenizer: LLTokenizer, whitespace: Whitespace) -> tuple[str, bool]:
    """The text for llguidance, and whether all schemas in it have a finite value."""
    finite = True

    def settle(part: dict[str, Any]) -> None:
        nonlocal finite
        normalize(part)
        settle_numbers(part)
        settle_names(part, tokenizer, combined=combines(part))
        finite &= forbid_endless(part)
        own = SEPARATORS[whitespace] if schema.kind == "json" else {}
        given = part.get("x-guidance", {})
        if isinstance(given, dict):
            part["x-guidance"] = {**_escapes(part), **own, **given}

    check_schema(schema)
    return rewritten(schema, settle), finite


def _escapes(part: dict[str, Any]) -> dict[str, Any]:
    """No letter may be written as its number, as it could spell a name that was to be left out."""
    needed = _CONTROL.search(json.dumps(part, ensure_ascii=False, default=str))
    return {} if needed else {"json_allowed_escapes": ESCAPES}


def _grammar(kind: str, text: str) -> str:
    from llguidance import LLMatcher

    match kind:
        case "json":
            try:
                return LLMatcher.grammar_from_json_schema(text)
            except ValueError as error:
                raise _refusal(str(error)) from error
        case "regex":
            return LLMatcher.grammar_from_regex(text)
        case "lark":
            if text.lstrip().startswith("{"):  # llguidance would take it for its own format
                raise _refusal("a grammar is text in Lark's notation with a rule start, not JSON")
            return LLMatcher.grammar_from_lark(text)
    raise ValueError(f"no kind of schema: {kind!r}")


def _read(tokenizer: Any, eos_ids: frozenset[int]) -> LLTokenizer:  # noqa: ANN401
    from llguidance import LLTokenizer

    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if not hasattr(backend, "to_str"):
        raise InputError(
            "schema needs a model with a fast tokenizer (tokenizer.json), which this one lacks"
        )
    backend = copy(backend)
    backend.no_padding()
    backend.no_truncation()
    try:
        return LLTokenizer(backend.to_str(), eos_token=sorted(eos_ids) or None)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"schema cannot be used with this model's tokenizer: {reason}") from error
