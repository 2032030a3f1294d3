"""What the operator decides: the table ``[plugins.serve]``, and options of ``mlxfill serve``."""

from __future__ import annotations

import re
from typing import Any

from attrs import field, frozen

from mlxfill import InputError, rules

ANY = "*"
"""The origin that stands for all."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\sA-Z]+|null")


def _are_origins(_: object, attribute: Any, value: tuple[str, ...]) -> None:  # noqa: ANN401
    """Origins as browsers write them: anything else would never be that of a page."""
    for origin in value:
        if origin != ANY and not _ORIGIN.fullmatch(origin):
            legal = "like https://chat.example or http://localhost:3000, in small letters, or *"
            raise InputError(f"{attribute.name} (--allow-origin) must be {legal}, not {origin!r}")


def _is_key(_: object, attribute: Any, value: object) -> None:  # noqa: ANN401
    """A key that a header can carry as it is, or None: no key at all."""
    if not isinstance(value, str) or (value.strip() == value and value.isprintable() and value):
        return
    if not value.strip():
        raise InputError(f"{attribute.name} is empty: give a value, or leave it out")
    said = "must not begin or end with a space, nor hold a line break: no client could send it"
    raise InputError(f"{attribute.name} {said}")


@frozen(kw_only=True)
class ServeSettings:
    """Where the server listens and what a request may cost.

    ``host``: address to listen on.
    ``port``: port to listen on, 0 for a free one.
    ``api_key``: what requests must carry as their bearer token; None: nothing.
    ``allow_public``: whether other machines may be let in without a key.
    ``rows``: requests that are decoded together.
    ``queue``: requests that may wait beyond those; any more get 429.
    ``timeout``: seconds that one request may take.
    ``max_tokens``: most tokens that a request gets, in all its replies together; 0: as many as the
    context holds.
    ``strict``: refuse fields that other servers know and this one ignores or calls otherwise.
    ``max_body``: bytes of a request.
    ``max_choices``: largest ``n``.
    ``drain``: seconds that running requests are given when the server is told to stop.
    ``hang``: seconds that the engine may stand still while there is work, 0 for ever.
    ``audit``: most tokens, prompt and reply, of a request that asks for an audit, 0: none may ask.
    ``origins``: web origins whose pages may call the server.
    ``special_tokens_in_content``: what a marker of the model (``<|im_end|>``) is that stands in the
    text of a message or tool: ``text``, so that nobody speaks in another's name, or ``control``.
    ``adapters``: LoRA adapters that requests may name as their model, by name.
    ``aliases``: other names for the model in requests, with ``*`` for any letters.
    ``log``: a line on standard error for each request: ``text`` or ``json``, ``off`` for none.
    """

    host: str = field(default="127.0.0.1", validator=rules.filled)  # "": all addresses
    port: int = field(default=8080, validator=rules.whole(0, 65535))
    api_key: str | None = field(default=None, repr=False, validator=_is_key)
    allow_public: bool = field(default=False, validator=rules.boolean)
    rows: int = field(default=8, validator=rules.whole(1))
    queue: int = field(default=64, validator=rules.whole(0))
    timeout: float = field(default=600.0, validator=rules.number(0.001))
    max_tokens: int = field(default=32_768, validator=rules.whole(0))
    strict: bool = field(default=False, validator=rules.boolean)
    max_body: int = field(default=8_000_000, validator=rules.whole(1))
    max_choices: int = field(default=8, validator=rules.whole(1))
    drain: float = field(default=30.0, validator=rules.number(0))
    hang: float = field(default=60.0, validator=rules.number(0))
    audit: int = field(default=0, validator=rules.whole(0))
    origins: tuple[str, ...] = field(default=(), validator=_are_origins)
    special_tokens_in_content: str = field(
        default="text", validator=rules.one_of("control", "text")
    )
    adapters: dict[str, str] = field(factory=dict)
    aliases: tuple[str, ...] = field(default=("claude-*",))
    log: str = field(default="off", validator=rules.one_of("off", "text", "json"))
