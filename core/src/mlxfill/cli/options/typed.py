"""Errors in the words that the user has typed: ``--max-tokens`` and not ``max_tokens``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill.cli.options.decoding import SHAPE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typer.core import TyperCommand, TyperGroup

    from mlxfill.errors import InputError

SHORT = len("-m")


def as_typed(
    error: InputError, command: TyperGroup | TyperCommand, arguments: Sequence[str]
) -> InputError:
    """The error; where it begins with the Python name of an option that was typed, with that.

    :param command: the whole command line's; those that its first words name count as well.
    """
    name, space, rest = str(error).partition(" ")
    typed = dict(_typed(command, arguments))
    option = typed.get(name)
    if option is None and name in SHAPE:  # forms of one option, which is called by the first
        option = next((typed[form] for form in SHAPE if form in typed), None)
    if option is not None:
        error.args = (f"{option}{space}{rest}",)
    return error


def _typed(
    command: TyperGroup | TyperCommand, arguments: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Parameters of the commands that the words lead through, and the option that stands for it."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for at in ["", *own]:
        command = getattr(command, "commands", {}).get(at, command)
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                if any(_stands_for(word, option) for word in own):
                    yield parameter.name, option


def _stands_for(word: str, option: str) -> bool:
    joined = word.startswith(option) and len(option) == SHORT  # -m5
    return word == option or word.startswith(f"{option}=") or joined
