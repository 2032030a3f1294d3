"""From the form of a model's calls and the tools of a request to a grammar of llguidance's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlxfill import TemplateError, argumenttypes, exactjson
from mlxfill.tool_calls import CallForm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill.tool_calls import ValueForm

_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "additionalProperties": False}
_SAYS_NOTHING = {"type", "properties", "required", "title", "description", "$schema"}
LONGEST = 4096
"""Characters; a longer bound of a text is none."""
SPACED = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
COMPACT = {"whitespace_flexible": False}
_STANDS = {CallForm.NINE: "/[A-Za-z0-9]{9}/", CallForm.COUNT: "/[0-9]{1,3}/"}
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$/#&~-]")


class CallGrammar:
    """Writes the grammar of one request.  Rules are collected in ``lines``."""

    def __init__(self, form: CallForm, added: Mapping[str, int]) -> None:
        """``added``: the ids of the tokens that a tokenizer finds in a text before all others."""
        self._form, self._added = form, added
        markers = sorted((t for t in added if t.strip()), key=len, reverse=True)
        places = [*map(re.escape, markers), *_STANDS]
        self._pieces = re.compile(f"({'|'.join(places)})")
        self._lines: list[str] = []
        self._cut = self._cut_at()

    def written(
        self, tools: Sequence[Mapping[str, Any]], answer: object = None, *, several: bool
    ) -> str:
        """Lark text of a reply that calls these tools.

        :param answer: a JSON schema that the reply may satisfy instead; None for none.
        :param several: whether there may be more than one call.
        :raises TemplateError: arguments that a tool requires cannot be put into a grammar.
        """
        self._lines = []
        form = self._form
        kinds = {"full": (form.end, form.join)}
        kinds |= {"bare": (form.bare_end, form.bare_join)} if form.bare_end else {}
        calls: dict[str, list[str]] = {kind: [] for kind in kinds}
        for number, tool in enumerate(tools):
            for kind, rule in self._tool(number, tool["function"]):
                calls[kind].append(rule)
        ways = []
        for kind, rules in calls.items():
            if rules:
                end, join = kinds[kind]
                cut = self._cut if kind == "full" else ""
                after = self._literal(end.removeprefix(cut)) or '""'
                if several and join:
                    after += f" | {self._literal(join.removeprefix(cut))} calls"
                ways.append(f"({' | '.join(rules)}) ({after})")
        reply = f"{self._literal(form.before)} calls"
        if answer is not None:
            reply += " | answer"
            self._lines.append(f"answer: %json {exactjson.dumps(answer)}")
        head = [f"start: /\\n{{0,2}}/ ({reply})", f"calls: {' | '.join(ways)}"]
        return "\n".join([*head, *self._lines])

    # --- a tool -----------------------------------------------------------------------

    def _tool(self, number: int, function: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Rules for calls of a tool, with the kind of each."""
        name, parameters = json.dumps(function["name"]), _closed(function.get("parameters"))
        begin = self._literal(self._form.begin)
        if not self._form.values:
            rule = f"call{number}: {name} {begin} arguments{number}"
            self._lines += [rule, f"arguments{number}: {self._json(parameters)}"]
            return [("full", f"call{number}")]
        keys = self._keys(number, function["name"], parameters)
        required = set(parameters.get("required") or ())
        found = [("bare", f"bare{number}")] if self._form.bare_end and not required else []
        if keys:
            ways = self._in_order(keys, required)
            self._lines.append(f"call{number}: {name} {begin} ({' | '.join(ways)})")
            found.append(("full", f"call{number}"))
        if ("bare", f"bare{number}") in found:
            self._lines.append(f"bare{number}: {name}")
        if not found:
            said = f"no call without arguments is read there, as those of {function['name']!r}"
            raise TemplateError(said)
        return found

    def _in_order(self, keys: Mapping[str, str], required: set[str]) -> list[str]:
        """Every way to give arguments in the order of the schema; one begins with each key."""
        between = self._literal(self._form.between.removeprefix(self._cut))
        names, ways = list(keys), []
        for first, name in enumerate(names):
            rest = [
                f"({between} {keys[key]}){'' if key in required else '?'}"
                for key in names[first + 1 :]
            ]
            ways.append(" ".join([keys[name], *rest]))
            if name in required:
                break
        return ways

    def _keys(self, number: int, tool: str, parameters: Mapping[str, Any]) -> dict[str, str]:
        """For each argument that can be written its rule, which holds the key."""
        properties = parameters.get("properties") or {}
        required = parameters.get("required") or ()
        rules: dict[str, str] = {}
        for at, (key, schema) in enumerate(properties.items()):
            values = self._values(schema, parameters, f"{number}_{at}")
            if values and self._literal(key) == json.dumps(key, ensure_ascii=False):
                rules[key] = f"key{number}_{at}"
                cut = self._literal(self._cut)
                ends = " | ".join(value if is_cut else f"{value} {cut}" for value, is_cut in values)
                self._lines.append(f"{rules[key]}: {self._literal(key)} ({ends})")
        missing = [key for key in required if key not in rules]
        if missing:
            said = (
                f"argument {missing[0]!r} of {tool!r} has a type that its template does not write"
            )
            raise TemplateError(said if missing[0] in properties else f"{said} or no type")
        return rules

    def _json(self, schema: Mapping[str, Any]) -> str:
        """JSON with the template's own space in it; llguidance allows any where none is fixed."""
        space = SPACED if self._form.spaced else COMPACT
        return f"%json {exactjson.dumps({'x-guidance': space, **schema})}"

    # --- a value ----------------------------------------------------------------------

    def _values(self, schema: object, root: Mapping[str, Any], at: str) -> list[tuple[str, bool]]:
        """Every way to write a value: a grammar's text, and whether ``cut`` stands in it."""
        found: list[tuple[str, bool]] = []
        for each in argumenttypes.branches(schema, root):
            listed = [each["const"]] if "const" in each else each.get("enum")
            if isinstance(listed, list):
                values = [self._listed(value) for value in listed]
            else:
                values = [
                    self._typed(kind, each, root, f"{at}_{len(found)}_{n}")
                    for n, kind in enumerate(argumenttypes.types_of(each))
                ]
            found += [value for value in values if value is not None]
        return found

    def _listed(self, value: object) -> tuple[str, bool] | None:
        """A value that is written in one way only."""
        form = self._form.values.get(argumenttypes.type_of(value))
        if form is None:
            return None
        if isinstance(value, str):
            if form.raw and (set(value) & set(form.never) or self._stop(form)[1] in value):
                return None
            text = value if form.raw else json.dumps(value, ensure_ascii=False)
        elif form.words:
            text = form.words[0 if value in {True, None} else -1]
        else:
            text = exactjson.dumps(value, ensure_ascii=False)
        return self._literal(form.opening + text + form.closing), False

    def _typed(
        self, kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], at: str
    ) -> tuple[str, bool] | None:
        form = self._form.values.get(kind)
        if form is None:
            return None
        opening, closing = self._literal(form.opening), self._literal(form.closing)
        if form.words:
            words = " | ".join(map(json.dumps, form.words))
            return f"{opening} ({words}) {closing}", False
        if form.raw:
            return f"{opening} {self._raw(form, schema, at.upper())}", True
        shared = {word: root[word] for word in ("$defs", "definitions") if word in root}
        whole = self._json({**schema, "type": kind, **shared})
        self._lines.append(f"value{at}: {whole}")
        return f"{opening} value{at} {closing}", False

    def _raw(self, form: ValueForm, schema: Mapping[str, Any], at: str) -> str:
        """A text as it is, and what ends it."""
        stop, tag = self._stop(form)
        most = schema.get("maxLength")
        bounds = f"{{{_bound(schema.get('minLength')) or 0},{_bound(most) or ''}}}"
        letter = f"[^{_escaped(form.never)}]" if form.never else "."
        line = f"V{at}: /(?s:{letter}{bounds})/"
        if tag:
            line += f" & ~/(?s:.*){_escaped(tag)}(?s:.*)/"
        self._lines.append(line)
        if stop:
            self._lines.append(f"W{at}: V{at} {json.dumps(stop, ensure_ascii=False)}")
        rest = self._literal(form.closing[len(stop) :])
        return f"{'W' if stop else 'V'}{at} {rest}".rstrip()

    def _stop(self, form: ValueForm) -> tuple[str, str]:
        """What ends a text that is written as it is, and the tag in it, "" for a token."""
        whole = form.closing + self._form.after_value
        token = self._pieces.search(whole)
        before = whole[: token.start()] if token else whole
        tag = next(iter(before.split()), "")
        if not (tag or token):
            raise TemplateError("nothing ends a text in its template")
        stop = before[: before.index(tag) + len(tag)] if tag else before
        return stop, tag

    def _cut_at(self) -> str:
        """The part of what follows every value that belongs to a text's end."""
        form = self._form.values.get("string")
        if form is None or not form.raw:
            return ""
        return self._stop(form)[0][len(form.closing) :]

    def _literal(self, text: str) -> str:
        """A text as a grammar has it: markers by their ids, everything else in quotes."""
        found = []
        for piece in self._pieces.split(text):
            if piece in _STANDS:
                found.append(_STANDS[piece])
            elif piece in self._added and piece.strip():
                found.append(f"<[{self._added[piece]}]>")
            elif piece:
                found.append(json.dumps(piece, ensure_ascii=False))
        return " ".join(found)


def _closed(parameters: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The schema of a tool's arguments; of none at all for a tool that declares none.

    OpenAI's reference: leaving ``parameters`` out defines a function without arguments.  Libraries
    write empty ``properties`` for that.
    """
    if not parameters or (
        parameters.get("properties") == {} and not set(parameters) - _SAYS_NOTHING
    ):
        return _NO_ARGUMENTS
    return parameters


def _bound(value: object) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LONGEST
    return value if known and isinstance(value, int) else None


def _escaped(text: str) -> str:
    """A text inside a regular expression."""
    return _SPECIAL.sub(r"\\\g<0>", text).replace("\n", "\\n").replace("\t", "\\t")
