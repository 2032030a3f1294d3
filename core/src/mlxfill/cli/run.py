"""Runs one command and turns whatever it raises into one line and an exit code."""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from errno import EBADF, EDQUOT, EFBIG, ENOSPC
from typing import TYPE_CHECKING, Any

import typer
from typer.main import get_group

from mlxfill.cli.app import build, unknown_command
from mlxfill.cli.options.blanks import refuse_blanks
from mlxfill.cli.options.invocation import Invocation, take_options
from mlxfill.cli.options.typed import as_typed
from mlxfill.cli.terminal.encoding import speak_utf8
from mlxfill.cli.terminal.streams import replace_closed
from mlxfill.errors import (
    BackendMissingError,
    ConfigError,
    InputError,
    MlxfillError,
    PluginError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
LAST_WORD = 10.0
"""Seconds that a process leaves to the first of its group for an error that all have."""
FULL = (ENOSPC, EDQUOT, EFBIG, EBADF)
"""What a file says that takes no more: of the disk, of the user's share, of its own size, or it
is closed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mlxfill`` with these arguments, by default those of the process.

    :returns: 0 done, 1 the work failed, 2 wrong use, 130 stopped by Ctrl-C.
    """
    invocation = Invocation()
    replace_closed()
    speak_utf8()
    streams = sys.stdout, sys.stderr
    try:
        invocation, rest = take_options(sys.argv[1:] if arguments is None else arguments)
        return _run(invocation, rest or ["--help"])
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a traceback is for --debug only
        sys.stdout, sys.stderr = streams
        if invocation.debug:
            traceback.print_exception(error)
        return _report(error)
    finally:
        gc.unfreeze()
        sys.stdout, sys.stderr = streams


def _run(invocation: Invocation, arguments: list[str]) -> int:
    group = get_group(build(arguments[0]))
    words = unknown_command(group, arguments)
    if words is not None:
        from mlxfill.cli.commands import add_command, announce

        if words:
            add_command(group, words, invocation)
        else:
            announce(group)
    refuse_blanks(group, arguments)
    try:
        code = group.main(arguments, prog_name="mlxfill", standalone_mode=False, obj=invocation)
    except InputError as error:
        raise as_typed(error, group, arguments) from error.__cause__
    return code if isinstance(code, int) else DONE


def _report(error: Exception) -> int:
    """Print an error, a line for each mistake, and say what the process ends with."""
    if isinstance(error, ImportError):
        error = _backend_missing() or error
    if isinstance(error, MlxfillError):
        for line in str(error).splitlines():
            _say(line, of_all=error.on_every_rank)
        return WRONG_USE if isinstance(error, InputError | ConfigError | PluginError) else FAILED
    # An error at a file of a name has the name; whoever writes other files handles a full disk.
    if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
        _drop_output()
        _say(f"cannot write to standard output: {error.strerror}")
        return FAILED
    if isinstance(error, FileNotFoundError) and error.filename is None and not _have_folder():
        _say("the working folder does not exist any more: cd to one that does", of_all=True)
        return FAILED
    if isinstance(error, typer.Abort):
        _say("aborted")
        return FAILED
    # Errors in options have no public class that all releases of typer share, but this method.
    message = getattr(error, "format_message", None)
    if message is not None:
        context = getattr(error, "ctx", None)
        at = getattr(context, "command_path", "mlxfill")
        said = _naming_its_value(message(), error.__cause__)
        line = f"{' '.join(said.split())}{_quoting(said, context)} (see {at} --help)"
        _say(line, of_all=True)  # all ranks were given these arguments
        return WRONG_USE
    _say(f"{type(error).__name__}: {' '.join(str(error).split())} (--debug shows where)")
    return FAILED


def _have_folder() -> bool:
    try:
        return bool(os.getcwd())  # noqa: PTH109 - no path is wanted
    except FileNotFoundError:
        return False


def _naming_its_value(message: str, cause: BaseException | None) -> str:
    """The same for newer releases of typer, which check by pydantic, and call a value "Input"."""
    message = message.replace("Value error, ", "")
    errors = getattr(cause, "errors", None)
    if errors is None:
        return message
    named = message.replace("Input should", f"{errors()[0].get('input')!r} should")
    return named.partition(", unable to parse")[0]


def _quoting(message: str, context: Any) -> str:  # noqa: ANN401 - typer's, of no public class
    """A hint for words that a shell has taken apart, where the command takes a text."""
    if "unexpected extra argument" not in message or context is None:
        return ""
    takes_text = any(parameter.metavar == "PROMPT" for parameter in context.command.params)
    return ": put quotes around a prompt of several words" if takes_text else ""


def _backend_missing() -> BackendMissingError | None:
    """Why nothing that needs mlx could be imported, if that is why."""
    from mlxfill.loading.model import require_backend

    try:
        require_backend()
    except BackendMissingError as missing:
        return missing
    return None


def _drop_output() -> None:
    """Forget what standard output does not take: Python would try once more on its way out."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _say(line: str, *, of_all: bool = False) -> None:
    """Print an error; ``of_all``: of the processes that share a model the first one speaks."""
    rank = os.environ.get("MLX_RANK", "0")
    if of_all and rank != "0":
        time.sleep(LAST_WORD)  # the launcher ends all as soon as one has ended
        return
    typer.echo(f"error{f' of rank {rank}' if rank != '0' else ''}: {line}", err=True)
