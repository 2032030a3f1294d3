"""Each reply in the colours of its tokens' origins, as one page that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxfill_bench.forecast.running import ALONE
from mlxfill_bench.forecast.summary import shares
from mlxfill_bench.page import KNOWN, TEMPLATE
from mlxfill_bench.sessions import name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlxfill_bench.forecast.running import Foreseen

SHOWN = 200
"""Replies that are shown: each token is an element of the page."""


def page(
    found: Mapping[str, Sequence[Foreseen]],
    tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper
    files: Sequence[Path],
    curve: str,
) -> str:
    """The page as HTML: the table, and the replies as the last arm foresees them."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATE), undefined=StrictUndefined, autoescape=True
    )
    arm, replies = list(found.items())[-1]
    shown = [
        {
            "name": name_of(each.reply.session, each.reply.turn),
            "tokens": list(
                zip(_texts(tokenizer, each.reply.ids), each.origins, each.reply.kinds, strict=True)
            ),
            "foreseen": sum(origin != ALONE for origin in each.origins),
        }
        for each in replies[:SHOWN]
    ]
    origins = sorted({origin for each in replies for origin in each.origins} - {ALONE})
    return environment.get_template("forecast.html.j2").render(
        css=Markup((TEMPLATE / "report.css").read_text("utf-8")),  # noqa: S704 - a file of our own
        shares=shares(found),
        arm=arm,
        replies=shown,
        left=len(replies) - len(shown),
        origins=[(origin, _class(origin)) for origin in origins],
        classes={origin: _class(origin) for origin in [*origins, ALONE]},
        files=[file.name for file in files],
        curve=curve,
    )


def _class(origin: str) -> str:
    return origin if origin in KNOWN or origin == ALONE else "other"


def _texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:  # noqa: ANN401
    stream = tokenizer.detokenizer
    texts = []
    for token in ids:
        stream.add_token(token)
        texts.append(stream.last_segment)
    stream.finalize()
    if texts:
        texts[-1] += stream.last_segment
    return texts
