"""Everything that ``mlxfill doctor`` finds out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from attrs import asdict, define, field

from mlxfill.cli.doctor import machine
from mlxfill.cli.survey import mistakes_of_those_off, survey
from mlxfill.config import Config
from mlxfill.config.environment import unread
from mlxfill.config.show import entries
from mlxfill.errors import ConfigError, MlxfillError
from mlxfill.plugins import scan

if TYPE_CHECKING:
    from mlxfill.cli.doctor.machine import Blas
    from mlxfill.cli.doctor.model import ModelFacts
    from mlxfill.cli.options.invocation import Invocation
    from mlxfill.engine import Engine


@define
class Checkup:
    """Findings.  ``problems``: what is broken; ``hints``: what could be better; a line each."""

    versions: dict[str, str] = field(factory=machine.versions)
    backends: list[str] = field(factory=machine.backends)
    device: dict[str, Any] | None = None
    blas: Blas | None = None
    config_file: str | None = None
    config_broken: bool = False
    plugins: dict[str, str] = field(factory=dict)
    model: ModelFacts | None = None
    problems: list[str] = field(factory=list)
    hints: list[str] = field(factory=list)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def check(invocation: Invocation, model: str | None) -> Checkup:
    """Look at installation and machine, and at a model if one is named."""
    found = Checkup()
    config = _check_config(found, invocation)
    _check_plugins(found, config)
    if _check_device(found) and model is not None:
        _check_model(found, config, model)
    return found


def _check_config(found: Checkup, invocation: Invocation) -> Config:
    try:
        config, mistakes = invocation.examined_config()
    except ConfigError as error:
        found.problems += str(error).splitlines()
        found.config_broken = True
        return Config()
    found.problems += mistakes
    found.config_file = config.file
    return config


def _check_plugins(found: Checkup, config: Config) -> None:
    keys = [entry.key for entry in entries(config, {})]
    for status in survey(config):
        keys += [f"plugins.{status.name}.{key}" for key in status.settings]
        found.plugins[status.name] = f"{status.version} {status.state}".strip()
        if status.problem is not None:
            found.problems.append(status.problem)
    found.problems += [*mistakes_of_those_off(config), *scan().doubled()]
    found.hints += unread(os.environ, keys)


def _check_device(found: Checkup) -> bool:
    """Whether mlx can compute."""
    from mlxfill.loading.model import require_backend

    try:
        require_backend()
    except MlxfillError as error:
        found.problems.append(str(error))
        return False
    found.device = machine.device()
    found.blas = machine.blas()
    if found.blas is not None and found.blas.remedy is not None:
        found.hints.append(
            "mlx computes with the slow reference BLAS of its CPU build, "
            f"in which n tokens of a large model cost about n steps; {found.blas.remedy}"
        )
    return True


def _check_model(found: Checkup, config: Config, model: str) -> None:
    from mlxfill.cli.doctor.model import examine
    from mlxfill.engine import load

    try:
        with load(model, config=config) as engine:
            found.model = examine(engine)
            told = [f"{fault.where}: {fault.message}" for fault in engine.faults]
            found.hints += [line for line in told if not _is_told(line, found.problems)]
            found.hints += _unused(engine, model)
    except MlxfillError as error:
        found.problems += [line for line in str(error).splitlines() if line not in found.problems]


def _unused(engine: Engine, model: str) -> list[str]:
    """A line about drafters that lie on this machine, where none is mounted."""
    from mlxfill.drafters.find import find_drafters

    if engine.drafter is not None or engine.no_rewind():
        return []
    listed = find_drafters(engine.plugins, model, engine.target.path, engine.learnt.curve())
    usable = [each.name for each in listed if each.usable]
    if not usable:
        return []
    line = f"{', '.join(usable)} can draft for this model, the first promises most"
    return [f"{line}: --draft auto, or see mlxfill drafters {model}"]


def _is_told(line: str, problems: list[str]) -> bool:
    return any(line.endswith(problem) for problem in problems)
