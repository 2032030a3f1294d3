"""The options that hold for every command, as each command finds them: ``invocation(ctx)``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define

from mlxfill.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

    from mlxfill.config import Config


@define
class Invocation:
    """``--config FILE`` (None: the usual places) and ``--debug``."""

    config_file: Path | None = None
    debug: bool = False

    def config(self) -> Config:
        """The config that holds for this command.  Raises ``ConfigError``."""
        from mlxfill.config import load_config

        return load_config(self.config_file)

    def examined_config(self) -> tuple[Config, list[str]]:
        """What is legal of it, and a line for each mistake.

        Raises ``ConfigError`` when it cannot be read at all.
        """
        from mlxfill.config import examine_config

        return examine_config(self.config_file)


def invocation(ctx: typer.Context) -> Invocation:
    """The invocation that a command is part of."""
    return ctx.ensure_object(Invocation)


def take_options(arguments: Sequence[str]) -> tuple[Invocation, list[str]]:
    """The options, which may stand anywhere before ``--``, and the arguments without them.

    :raises InputError: ``--config`` is empty, or the last word.
    """
    taken = Invocation()
    rest: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if argument == "--":
            return taken, [*rest, argument, *waiting]
        if argument == "--debug":
            taken.debug = True
        elif argument == "--config":
            if not waiting:
                raise InputError("--config needs the name of a file (see mlxfill --help)")
            taken.config_file = _file(waiting.pop(0))
        elif argument.startswith("--config="):
            taken.config_file = _file(argument.removeprefix("--config="))
        else:
            rest.append(argument)
    return taken, rest


def _file(text: str) -> Path:
    if not text:
        raise InputError("--config is empty: give it a value, or leave it out")
    return Path(text)
