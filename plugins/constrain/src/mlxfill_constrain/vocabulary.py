"""The tokens of one model as llguidance wants them, and the grammars compiled for them.

llguidance (https://github.com/guidance-ai/llguidance) does the parsing: derivative-based lexing
and an Earley parser, over a trie of the vocabulary.
"""

from __future__ import annotations

from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mlxfill import InputError
from mlxfill_constrain.metaschema import check_schema
from mlxfill_constrain.numbers import check_numbers

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from mlxfill import Schema
    from mlxfill_constrain.settings import Whitespace

GRAMMARS_KEPT = 64
KINDS_KEPT = 4
"""Sets of ids that end a reply, of one tokenizer, for which its vocabulary is kept."""
REASON_LENGTH = 300
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

    def __init__(self, tokenizer: LLTokenizer) -> None:
        self._tokenizer = tokenizer
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
            known = cls(_read(tokenizer, eos_ids))
            for oldest in list(kinds)[: len(kinds) + 1 - KINDS_KEPT]:
                kinds.pop(oldest, None)  # a request says what ends it: there may be many
            kinds[eos_ids] = known
        return known

    def matcher(self, schema: Schema, whitespace: Whitespace) -> LLMatcher:
        """A fresh matcher, its grammar compiled when it is first seen (milliseconds).

        :raises InputError: the schema is wrong, uses what llguidance does not know, is too large,
            or no text satisfies it.
        """
        return self._compiled(schema, whitespace).deep_copy()

    def spelled(self, text: bytes) -> list[int]:
        """The longest tokens that make up a text, without special ones."""
        return self._tokenizer.greedy_tokenize(text.decode(errors="ignore"))

    def _compile(self, schema: Schema, whitespace: Whitespace) -> LLMatcher:
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(verbose_errors=False)
        grammar = _grammar(schema, whitespace)
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits)
        # Some dead ends show only now; and what is computed here, every copy has.
        first = matcher.deep_copy()
        first.compute_ff_tokens()
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
        reason = "no text satisfies it"
    if len(reason) > REASON_LENGTH:
        reason = f"{reason[:REASON_LENGTH]}..."
    return InputError(f"schema cannot be used: {reason}")


def _grammar(schema: Schema, whitespace: Whitespace) -> str:
    from llguidance import LLMatcher

    check_schema(schema)
    check_numbers(schema)
    match schema.kind:
        case "json":
            options: Any = SEPARATORS[whitespace]
            try:
                return LLMatcher.grammar_from_json_schema(schema.text, defaults=options)
            except ValueError as error:
                raise _refusal(str(error)) from error
        case "regex":
            return LLMatcher.grammar_from_regex(schema.text)
        case "lark":
            if schema.text.lstrip().startswith("{"):  # llguidance would take it for its own format
                raise _refusal("a grammar is text in Lark's notation with a rule start, not JSON")
            return LLMatcher.grammar_from_lark(schema.text)


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
