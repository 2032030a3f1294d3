"""Where the reply begins in a request's prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from mlxfill import Request
    from mlxfill_fill_strict.reading import Markers
    from mlxfill_fill_strict.spans import Ids

_TAIL = 512
"""Most prompt ids in which the beginning of the reply is looked for."""


@frozen
class Begun:
    """What the prompt already holds of the reply: ``text``, then what ``ids`` say."""

    text: str = ""
    ids: Ids = ()


def begun_reply(request: Request, opening: str, markers: Markers) -> Begun | None:
    """The part of the reply that stands at the end of a prompt.

    The opening may open the reasoning, too, and a prompt may end in the middle of a call.

    :param opening: the template's text that opens a reply.
    :returns: None when the prompt opens no reply, so that nothing can be proven.
    """
    tail = request.prompt_ids[-_TAIL:]
    text = request.prompt_text or markers.decode(tail)
    at = text.rfind(opening)
    if at < 0:
        return None
    thinks = opening.rfind(markers.think_start) if markers.think_start else -1
    is_open = thinks >= 0 and markers.think_end not in opening[thinks:]
    reasoning = opening[thinks:] if is_open else ""
    begun = text[at + len(opening) :]
    size = len(request.tokenizer.encode(begun, add_special_tokens=False)) if begun else 0
    while size and not begun.endswith(markers.decode(tail[-size:])):
        size -= 1
    ids = tail[-size:] if size else ()
    return Begun(reasoning + begun.removesuffix(markers.decode(ids)), ids)
