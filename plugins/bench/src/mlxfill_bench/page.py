"""The report as one page that needs nothing else: plots, figures, the origin of each token."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill_bench.arms import PLAIN
from mlxfill_bench.charts import charts
from mlxfill_bench.paired import DRAWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlxfill_bench.advice import Advice
    from mlxfill_bench.measuring import Measurement
    from mlxfill_bench.observed import Observed, Token
    from mlxfill_bench.verdict import Verdict

TEMPLATE = Path(__file__).with_name("template")
SAMPLED = "sampled"
KNOWN = ("ngram", "echo", "draft", "mtp", "template", "schema", "grammar")
"""Origins that have a colour of their own in the style sheet."""
SHOWN = 24
"""Prompts whose answers are shown: each token is an element of the page."""


@frozen
class AnswerMap:
    """One arm's answer to one prompt.  ``forwards``: passes through the model that brought it."""

    arm: str
    speed: str
    tokens: Sequence[Token]
    same: bool

    @property
    def forwards(self) -> int:
        """Of the tokens that are shown."""
        return self.tokens[-1].forward if self.tokens else 0

    @property
    def shares(self) -> list[tuple[str, int]]:
        """Origins and their numbers of tokens, the commonest first."""
        return Counter(token.origin for token in self.tokens).most_common()


def page(measured: Measurement, advice: Advice, verdicts: Sequence[Verdict] = ()) -> str:
    """The report as HTML.

    :param verdicts: of recorded sessions, what was done in them.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["origin"] = _origin_class
    environment.filters["quoted"] = partial(json.dumps, ensure_ascii=False)
    drawn = [(chart, Markup(chart.svg(measured))) for chart in charts(measured)]  # noqa: S704 - our own
    return environment.get_template("report.html.j2").render(
        facts=measured.facts,
        plain=measured.plain,
        effects=measured.effects,
        advice=advice,
        verdicts=verdicts,
        charts=drawn,
        prompts=_prompts(measured),
        left_out=max(measured.facts["prompts"] - SHOWN, 0),
        origins=_origins(measured.observed),
        sampled=SAMPLED,
        draws=DRAWS,
        style=_part("report.css"),
        script=_part("report.js"),
    )


def _part(name: str) -> Any:  # noqa: ANN401 - markupsafe's class
    from markupsafe import Markup

    return Markup((TEMPLATE / name).read_text("utf-8"))  # noqa: S704 - our own file


def _prompts(measured: Measurement) -> list[tuple[str, list[AnswerMap]]]:
    """The first prompts and the answers to them; plain decoding's where none is the same."""
    names = list(dict.fromkeys(answer.name for answer in measured.observed))
    return [
        (name, _answers(measured, [a for a in measured.observed if a.name == name]))
        for name in names[:SHOWN]
    ]


def _answers(measured: Measurement, answers: Iterable[Observed]) -> list[AnswerMap]:
    by_arm = {answer.arm: answer for answer in answers}
    plain = [token.id for token in by_arm[PLAIN].tokens]
    speeds = {e.arm: e.by_prompt[by_arm[e.arm].name].ratio for e in measured.effects}
    shown = []
    for arm, answer in by_arm.items():
        same = [token.id for token in answer.tokens] == plain
        speed = f"x{speeds[arm]:.2f}" if arm in speeds else "x1.00"
        shown.append(AnswerMap(arm, speed, answer.tokens, same))
    # Where every arm says the same, its text stands there anyway.
    return shown if not all(answer.same for answer in shown) else [*shown[1:], shown[0]]


def _origins(observed: Sequence[Observed]) -> list[str]:
    """All that occur, the model's own choice last."""
    found = {token.origin for answer in observed for token in answer.tokens} - {SAMPLED}
    return [*sorted(found), SAMPLED]


def _origin_class(origin: str) -> str:
    """The class of an origin in the style sheet."""
    return origin if origin in KNOWN or origin == SAMPLED else "other"
