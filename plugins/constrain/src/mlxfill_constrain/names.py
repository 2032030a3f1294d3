"""``patternProperties``, behind whose commas llguidance can run into a dead end.

It lets an object go on to a further name without asking whether any is left that the pattern
matches and that was not written already, as for ``^score$`` beside a property ``score``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill import InputError
from mlxfill_constrain.tree import nodes

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from mlxfill_constrain.tree import Node

MOST_MATCHES = 5_000
"""Patterns times names that are compared."""
MOST_PATTERNS = 50
"""Of one object: llguidance compares each with every other, for milliseconds."""
PATTERNS, REST = "patternProperties", "additionalProperties"


def settle_names(root: Node, tokenizer: LLTokenizer, *, combined: bool) -> None:
    """Name the properties that are all that a pattern matches, and leave the pattern out.

    :param combined: whether objects of the schema are combined, so that the names of one meet the
        patterns of another.
    :raises InputError: a name may be missing, or several may be wanted that nobody counts.
    """
    names = Names(tokenizer)
    found = nodes(root)
    if sum(len(node.get(PATTERNS, ())) * len(_named(node)) for node in found) > MOST_MATCHES:
        raise InputError(f"schema cannot be used: {PATTERNS} of too many names and patterns")
    if max((len(node.get(PATTERNS, ())) for node in found), default=0) > MOST_PATTERNS:
        raise InputError(
            f"schema cannot be used: more than {MOST_PATTERNS} {PATTERNS} of one object"
        )
    for node in found:
        if node.get(PATTERNS):
            names.settle(node)
        _check_count(node)
    patterned = [node for node in found if node.get(PATTERNS)]
    if patterned and combined:
        taken = {name for node in found for name in _named(node)}
        patterns = {pattern for node in patterned for pattern in node[PATTERNS]}
        rest = any(node.get(REST, True) is not False for node in patterned)
        left = all(names.left({pattern: True}, taken) for pattern in patterns)
        if rest:
            left = left and names.left(dict.fromkeys(patterns, False), taken)
        if not left:
            said = f"{PATTERNS} and other names of schemas that are combined leave no further name"
            raise InputError(f"schema cannot be used: {said}")


def _named(node: Node) -> list[str]:
    return list(dict.fromkeys([*node.get("properties", ()), *node.get("required", ())]))


def _check_count(node: Node) -> None:
    """A name may be written twice, and counts once."""
    least = node.get("minProperties", 0) - len(set(node.get("required", ())))
    free = node.get(PATTERNS) or node.get(REST, True) is not False
    if least > 1 and free:
        said = f"minProperties {node['minProperties']} counts names that are not in required"
        raise InputError(f"schema cannot be used: {said}")


@frozen
class Names:
    """Asks llguidance which names its grammars leave."""

    tokenizer: LLTokenizer

    def settle(self, node: Node) -> None:
        """Make sure that each pattern of an object, and what is beside them, has names left."""
        for pattern, schema in list(node[PATTERNS].items()):
            if not self.left({pattern: True}, _named(node)):
                del node[PATTERNS][pattern]
                self._name(node, pattern, schema)
        patterns = dict.fromkeys(node[PATTERNS], False)
        if patterns and node.get(REST, True) is not False and not self.left(patterns, _named(node)):
            node[REST] = False
        if not node[PATTERNS]:
            del node[PATTERNS]

    def _name(self, node: Node, pattern: str, schema: Any) -> None:  # noqa: ANN401 - JSON
        properties = node.setdefault("properties", {})
        for name in _named(node):
            if matches(pattern, name):
                known = name in properties
                properties[name] = {"allOf": [properties[name], schema]} if known else schema

    def left(self, patterns: Mapping[str, bool], taken: Iterable[str]) -> bool:
        """Whether there is a name that is not taken and matches a pattern that is true.

        Where none of them is, one that matches none.
        """
        from llguidance import LLMatcher

        rest = not any(patterns.values())
        asked = _object(
            properties=dict.fromkeys(taken, False),
            patternProperties=dict(patterns),
            additionalProperties=rest,
            minProperties=1,
        )
        matcher = LLMatcher(self.tokenizer, asked, log_level=0)
        (brace,) = self.tokenizer.tokenize_str("{")
        if not matcher.consume_token(brace):
            return False
        return any(matcher.compute_bitmask()) and not matcher.is_error()


@lru_cache(maxsize=MOST_MATCHES)
def matches(pattern: str, name: str) -> bool:
    """Whether a pattern is found in a name, as llguidance reads it."""
    from llguidance import LLMatcher

    asked = _object(patternProperties={pattern: False}, required=[name])
    return "unsatisfiable" in LLMatcher.validate_grammar(asked)


def _object(**words: object) -> str:
    from llguidance import LLMatcher

    text = json.dumps({"type": "object", **words}, ensure_ascii=False)
    return LLMatcher.grammar_from_json_schema(text, defaults={"whitespace_flexible": False})
