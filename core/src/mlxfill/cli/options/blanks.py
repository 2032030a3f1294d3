"""Options given as empty text: a shell variable that is not set, as in ``--model "$MODEL"``.

Left to the commands, some would answer with another model, others take ``""`` for the working
folder.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from typer.core import TyperOption

from mlxfill.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer.core import TyperCommand, TyperGroup

MEANINGFUL = frozenset({"--system", "--system-prompt"})
"""An empty system message is one all the same: some templates write another without any."""


def refuse_blanks(command: TyperGroup | TyperCommand, arguments: Sequence[str]) -> None:
    """Raise ``InputError`` for the first option of ``command`` whose value is empty.

    :param command: the whole command line's; those that its first words name count as well.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    takes = _with_value(command, own) - MEANINGFUL
    for before, text in pairwise(["", *own]):
        name, sign, value = text.partition("=")
        if before in takes and not text:
            name = before
        elif name not in takes or not sign or value:
            continue
        raise InputError(f"{name} is empty: give it a value, or leave it out")


def _with_value(command: TyperGroup | TyperCommand, words: Sequence[str]) -> set[str]:
    """The options that take a value, of all commands that the words lead through."""
    found: set[str] = set()
    for word in ["", *words]:
        command = getattr(command, "commands", {}).get(word, command)
        for parameter in command.params:
            if isinstance(parameter, TyperOption) and not parameter.is_flag:
                found.update(parameter.opts)
    return found
