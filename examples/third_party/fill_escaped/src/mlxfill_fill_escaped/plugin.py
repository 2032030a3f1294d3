"""The entry point ``fill-escaped``: finds the reply in escaped forms of the prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from urllib.parse import quote

from attrs import field, frozen, validators

from mlxfill import Policy, Proposal, ProposalSource, Request, TokenView, hookimpl, rules

MLXFILL_API = 2
ORIGIN = "escaped"
MOST_CHARACTERS = 20_000
"""Characters of a prompt that are escaped, from its end: more would delay the first token."""
FORMS: dict[str, Callable[[str], str]] = {
    "json": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "url": quote,
}


@frozen
class EscapedSettings:
    """The table ``[plugins.fill-escaped]``."""

    match: int = field(default=3, validator=rules.whole(1))
    longest: int = field(default=24, validator=rules.whole(2))
    forms: list[str] = field(
        factory=lambda: list(FORMS), validator=validators.deep_iterable(rules.one_of(*FORMS))
    )


class EscapedSource:
    """Where the newest ``match`` tokens stand in an escaped prompt, offers what follows them."""

    name = ORIGIN

    def __init__(self, forms: Sequence[Sequence[int]], settings: EscapedSettings) -> None:
        """``forms``: the escaped prompts as ids."""
        self.window, self.longest = settings.match, settings.longest
        self.after: dict[tuple[int, ...], Sequence[int]] = {}
        for ids in forms:
            for at in range(self.window, len(ids)):
                run = tuple(ids[at - self.window : at])
                self.after.setdefault(run, ids[at : at + self.longest])

    def propose(self, view: TokenView) -> Proposal | None:
        """An offer, or None where the newest tokens stand in no form of the prompt."""
        ids = self.after.get(tuple(view.tail(self.window)))
        if not ids:
            return None
        return Proposal(tuple(ids), Policy.VERIFY, ORIGIN, evidence=self.window)

    def observe(self, ids: Sequence[int]) -> None:
        """The view has all that counts."""

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        """Nothing to learn from it."""


@hookimpl
def mlxfill_settings() -> type[EscapedSettings]:
    """The settings class."""
    return EscapedSettings


@hookimpl
def mlxfill_proposal_sources(
    request: Request, settings: EscapedSettings | None
) -> list[ProposalSource]:
    """One source, unless escaping changes nothing."""
    settings = settings or EscapedSettings()
    text = request.prompt_text or request.tokenizer.decode(list(request.prompt_ids))
    text = text[-MOST_CHARACTERS:]
    escaped = [FORMS[name](text) for name in settings.forms]
    forms = [
        request.tokenizer.encode(form, add_special_tokens=False) for form in escaped if form != text
    ]
    return [EscapedSource(forms, settings)] if forms else []
