"""A checkup for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mlxfill.cli.terminal.report import TYPICAL

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mlxfill.cli.doctor.checkup import Checkup
    from mlxfill.cli.doctor.model import ModelFacts

GIB = 1 << 30
CHART = 40
CURVE = "cost of a forward of n tokens, in forwards of one"


def page(found: Checkup, bar: str) -> RenderableType:
    """The whole report.  ``bar``: a character to draw with."""
    parts: list[RenderableType] = [_pairs(_installation(found))]
    if found.model is not None:
        parts += ["", _pairs(_model(found.model)), "", CURVE, chart(found.model.cost, bar)]
        parts += [Text(_kept(found.model), "yellow" if found.model.disturbed else "dim"), ""]
        parts.append(Text(found.model.verdict, "bold"))
    parts.append("")
    parts += [Text(f"problem: {line}", "red") for line in found.problems]
    parts += [Text(f"hint: {line}", "yellow") for line in found.hints]
    parts += [] if found.problems else [Text("nothing is broken", "green")]
    return Group(*parts)


def chart(cost: dict[int, float], bar: str) -> Table:
    """A bar for each window size."""
    longest = max(cost.values())
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right")
    for n, value in cost.items():
        drawn = bar * max(round(CHART * value / longest), 1)
        table.add_row(str(n), Text.assemble((drawn, "cyan"), f" {value:.2f}"))
    return table


def _kept(model: ModelFacts) -> str:
    if model.unkept:
        return f"could not be kept for the next start: {model.unkept}"
    if model.disturbed:
        return (
            f"provisional: other programs ran ({model.disturbed}); "
            "the next start measures again, and so does mlxfill doctor"
        )
    if model.believed is None:
        return "kept for the next start"
    was = model.believed[TYPICAL]
    return f"kept for the next start; until now a window of {TYPICAL} was held to cost {was:.2f}"


def _pairs(pairs: dict[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        table.add_row(Text(name, "bold"), Text(value))
    return table


def _installation(found: Checkup) -> dict[str, str]:
    blas = found.blas
    return {
        "versions": _listed(found.versions),
        "backend": ", ".join(found.backends) or "none",
        "device": _device(found),
        **(
            {} if blas is None else {"blas": f"{blas.library} ({'tuned' if blas.fast else 'slow'})"}
        ),
        "config": found.config_file or ("defaults" if found.config_broken else "no file, defaults"),
        "plugins": _listed(found.plugins) or "none installed",
    }


def _listed(facts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def _device(found: Checkup) -> str:
    if found.device is None:
        return "mlx cannot compute here"
    facts = dict(found.device)
    memory, name = facts["memory_bytes"], facts.get("device_name", facts["device"])
    return f"{facts['device']}, {name}, {facts['cores']} cores, {memory / GIB:.1f} GiB"


def _model(model: ModelFacts) -> dict[str, str]:
    caches = ", ".join(f"{count} {kind}" for kind, count in model.caches.items())
    return {
        "model": model.path,
        "architecture": f"{model.architecture}, {model.layers} layers",
        "weights": f"{model.parameters / 1e6:.1f} million, {model.dtype}",
        "vocabulary": f"{model.vocabulary} tokens, context {model.context or 'unknown'}",
        "split": "yes: hidden states without logits" if not model.split else f"no: {model.split}",
        "rewind": "yes, tried" if not model.rewind else f"no: {model.rewind}",
        "caches": caches,
    }
