"""What a plugin did wrong, in one line."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING

from mlxfill.contracts import Fault
from mlxfill.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Iterator


CORE = Path(__file__).parents[1]
"""Folder of the core, whose own lines are nothing to a plugin's author."""
LONGEST = 500
"""Characters of an error's message; a plugin may have put a whole prompt into it."""

NOT_KEPT = ("engine", "checkpoint")


def is_not_kept(fault: Fault) -> bool:
    """Whether it says that the newest checkpoint of a reply could not be written."""
    return (fault.plugin, fault.where) == NOT_KEPT


def one_line(error: BaseException) -> str:
    """Type and message of an exception in one line that can be read, whatever it says."""
    try:
        message = " ".join(str(error).split())
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a plugin's exception may be broken itself
        message = ""
    if len(message) > LONGEST:
        message = f"{message[:LONGEST]}..."
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def charge(error: BaseException) -> str:
    """``one_line`` of whatever a plugin raised, and where; ``SystemExit`` too, Ctrl-C passes."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    return f"{one_line(error)}{_place(error)}"


def _place(error: BaseException) -> str:
    """File and line in the plugin, in brackets: nobody sees a traceback of a fault.

    The outermost frame outside the core is the plugin's; of those beside its file the innermost
    counts, so that a library that it called is not blamed.  A frame that hides itself from tests
    (``__tracebackhide__``, as pytest has it) stands for what it calls.
    """
    frames = walk_tb(error.__traceback__)
    shown = [each for each in frames if not each[0].f_locals.get("__tracebackhide__")]
    lines = [(Path(frame.f_code.co_filename), line) for frame, line in shown]
    foreign = [(file, line) for file, line in lines if not file.is_relative_to(CORE)]
    if not foreign:
        return ""
    folder = foreign[0][0].parent
    file, line = [each for each in foreign if each[0].is_relative_to(folder)][-1]
    return f" ({file.name}, line {line})"


def parted(fault: Fault) -> PluginError:
    """What ends a request in a team where a plugin was to be left out: others may not know it."""
    return PluginError(
        f"plugin {fault.plugin!r} failed in {fault.where}: {fault.message}; ranks that share a"
        " model cannot leave it out, as it may work on the others"
    )


@contextmanager
def recorded(
    plugin: str, where: str, faults: list[Fault], passing: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn whatever a plugin raises inside, ``SystemExit`` too, into a fault; Ctrl-C passes.

    :param passing: what the caller wants to hear of.
    """
    try:
        yield
    except BaseException as error:
        # The host outlives its plugins.
        if isinstance(error, (KeyboardInterrupt, *passing)):
            raise
        faults.append(Fault(plugin, where, charge(error)))
