"""What a chat template never reads: it would be lost, and nobody would say so."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from mlxfill.chat.prompt import template_sources
from mlxfill.contracts import Fault
from mlxfill.nearest import did_you_mean
from mlxfill.tool_calls.history import writes_no_calls
from mlxfill.tool_calls.probe import CallProbe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jinja2.nodes import Name, Node
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mlxfill.contracts import Request

MOST = 64
"""Names that an engine looks at: whoever goes on to send new ones hears no more."""
GIVEN = ("messages", "tools", "add_generation_prompt", "raise_exception", "strftime_now")
"""Names that a template reads without an option; so are those of special tokens."""
_LONGEST = 80
"""Characters of a name that are shown."""
_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""The tags that transformers adds to jinja2: they read nothing."""


class TemplateChecks:
    """Tells of each option that does nothing, and of calls, once.  One object an engine.

    To refuse them would not do: many clients send ``enable_thinking`` to every model, and call
    tools of models whose template knows calls in their own markup only.
    """

    def __init__(self, tokenizer: TokenizerWrapper) -> None:
        """``tokenizer`` is mlx-lm's wrapper; its templates are read when there is an option."""
        self._tokenizer = tokenizer
        self._seen: set[str] = set()
        self._calls_seen = False

    def faults(self, request: Request) -> list[Fault]:
        """One for each option that no template reads and for calls, if not looked at before."""
        if "chat_template" in request.template_options:  # another one is read than the model's
            return []
        return [*self._about_options(request.template_options), *self._about_calls(request)]

    def _about_calls(self, request: Request) -> Iterator[Fault]:
        """The first conversation with a call in it decides."""
        calling = any(message.get("tool_calls") for message in request.messages or ())
        if calling and not self._calls_seen:
            self._calls_seen = True
            asked = request.render, request.tokenizer, request.tools, request.template_options
            if writes_no_calls(CallProbe(*asked)):
                said = (
                    "the chat template writes no tool calls: the model sees none of earlier turns"
                )
                yield Fault("engine", "messages", said, notice=True)

    def _about_options(self, options: Mapping[str, object]) -> list[Fault]:
        new = [name for name in options if name not in self._seen][: MOST - len(self._seen)]
        self._seen.update(new)
        return [] if not new or self._read is None else list(_about(new, self._read))

    @cached_property
    def _read(self) -> dict[str, bool] | None:
        """Names that the templates look up, and which of them are not first set by the template.

        None where code reads the options, or a template that jinja2 alone cannot parse.
        """
        from jinja2 import Environment, TemplateSyntaxError
        from jinja2.meta import find_undeclared_variables

        environment = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True)
        read: dict[str, bool] = {}
        for source in template_sources(self._tokenizer):
            try:
                tree = environment.parse(_GENERATION.sub("", source))
            except TemplateSyntaxError:
                return None
            first = {name.name: name.ctx == "load" for name in reversed(list(_names(tree)))}
            for name in find_undeclared_variables(tree):
                read[name] = read.get(name, False) or first[name]
        return read or None


def _about(names: Iterable[str], read: Mapping[str, bool]) -> Iterable[Fault]:
    legal = sorted(
        name
        for name, ours in read.items()
        if ours and name not in GIVEN and not name.endswith("_token")
    )
    for name in names:
        if name not in read and name not in _arguments():
            hint = did_you_mean(name, legal) or f"; it reads {', '.join(legal) or 'no others'}"
            said = f"the chat template never reads {name[:_LONGEST]!r}{hint}"
            yield Fault("engine", "template_options", said, notice=True)


def _names(node: Node) -> Iterator[Name]:
    """The names in a template in the order in which they are looked up or set."""
    from jinja2.nodes import Assign, Name

    if isinstance(node, Name):
        yield node
    parts = [node.node, node.target] if isinstance(node, Assign) else node.iter_child_nodes()
    for part in parts:
        yield from _names(part)


def _arguments() -> Iterable[str]:
    """What transformers takes for itself."""
    from inspect import signature

    from transformers import PreTrainedTokenizerBase

    return signature(PreTrainedTokenizerBase.apply_chat_template).parameters
