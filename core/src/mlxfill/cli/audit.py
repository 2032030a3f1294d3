"""``mlxfill audit``: a run with plugins beside plain decoding, token by token."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import define

from mlxfill.cli.groups import grouped
from mlxfill.cli.options.ask import Ask
from mlxfill.cli.options.decoding import Decoding
from mlxfill.cli.options.invocation import invocation
from mlxfill.cli.options.loading import Loading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table

    from mlxfill.audit.audit import Audit

    Decode = Callable[[list[int]], str]

LEAST = ("behind", "margin", "policy", "from")
"""Columns that a narrow terminal does without, in this order."""


@define
class Findings:
    """How the findings are shown."""

    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON, nothing else.")
    ] = False


@grouped
def audit(
    ctx: typer.Context, ask: Ask, loading: Loading, decoding: Decoding, findings: Findings
) -> None:
    """Answer a prompt; hold each proposed token against the model."""
    prompt, tools = ask.read()
    config = invocation(ctx).config()
    decoding.check(config)

    from rich.console import Console

    from mlxfill.cli.terminal.report import print_faults
    from mlxfill.cli.terminal.tables import fit_table, standard_output
    from mlxfill.cli.terminal.waiting import waiting

    errors = Console(stderr=True, highlight=False, quiet=findings.as_json)
    with waiting(errors, f"loading {loading.model_name(config)}"):
        engine = loading.engine(config)
    with engine, waiting(errors, "generating, then decoding the same text plainly"):
        found = engine.audit(prompt, tools=tools, **decoding.for_engine(engine))
    decode: Decode = engine.tokenizer.decode
    if findings.as_json:
        typer.echo(json.dumps(found.as_dict(decode), ensure_ascii=False))
        return
    if found.proposed:
        console = standard_output()
        console.print(fit_table(console, _table(found, decode), LEAST))
    for line in _verdict(found, decode):
        typer.echo(line)
    print_faults(errors, [*engine.faults, *found.result.faults])


def _table(found: Audit, decode: Decode) -> Table:
    """A row for each proposed token."""
    from rich.text import Text

    from mlxfill.cli.terminal.tables import bare_table

    table = bare_table()
    table.add_column("token", justify="right")
    for name in ("from", "policy", "proposed", "model's own"):
        table.add_column(name)
    for name in ("margin", "behind"):
        table.add_column(name, justify="right")
    table.add_column("agree")
    for p in found.proposed:
        cells = (
            str(p.generated),
            p.origin,
            str(p.policy),
            repr(decode([p.proposed])),
            repr(decode([p.model])),
            _number(p.margin),
            "" if p.agrees else _number(p.behind),
            "yes" if p.agrees else "no",
        )
        style = "" if p.agrees else "yellow"
        table.add_row(
            *(Text(cell, overflow="ellipsis", no_wrap=True) for cell in cells), style=style
        )
    return table


def _verdict(found: Audit, decode: Decode) -> Iterator[str]:
    """What it comes to; the last line says whether the text is that of plain decoding."""
    if not found.proposed:
        yield "nothing was proposed"
    kinds = sorted({(p.origin, str(p.policy)) for p in found.proposed})
    for origin, policy in kinds:
        agree = [p.agrees for p in found.proposed if (p.origin, p.policy) == (origin, policy)]
        yield f"{origin} ({policy}): {sum(agree)} of {len(agree)} proposed tokens agree"
    yield f"noise of this precision: {found.noise:.2g}"
    if found.caches is not None:
        alike = "as" if found.caches <= found.noise else "UNLIKE"
        yield f"caches: answer {alike} those of plain decoding (difference {found.caches:.2g})"
    yield f"identical to plain decoding: {_identical(found, decode)}"


def _identical(found: Audit, decode: Decode) -> str:
    first = found.difference
    if first is None:
        return "yes"
    where = f"no, token {first.generated} is {decode([first.token])!r} ({first.origin})"
    plain = f"{decode([first.model])!r} in plain decoding"
    if first.behind is None:
        return f"{where}, {plain}; the sampler gives no margin"
    size = "within" if first.rounding else "more than"
    return f"{where}, {plain}, by a margin of {first.behind:.2g}: {size} the noise"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"
