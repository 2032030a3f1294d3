"""The command ``mlxfill launch``: an agent, with a server for it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Annotated
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import typer

from mlxfill import InputError
from mlxfill_serve.agents import AGENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfill_serve.agents import Agent

NO_KEY = "none"
"""What agents that insist on a key give to a server that wants none."""
SECONDS = 5.0


def launch(  # noqa: PLR0913, PLR0917 - the options of a command
    agent: Annotated[str, typer.Argument(metavar="AGENT", help=f"{', '.join(AGENTS)}.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="For the agent itself.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="What a server that is begun loads.")
    ] = None,
    url: Annotated[
        str, typer.Option(metavar="URL", help="Of the server; one is begun if none answers.")
    ] = "http://127.0.0.1:8080",
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", envvar="MLXFILL_API_KEY", help="Of the server.")
    ] = None,
    print_: Annotated[
        bool, typer.Option("--print", help="Print variables and command; begin nothing.")
    ] = False,
) -> None:
    """Start an agent that talks to this machine's model."""
    if agent not in AGENTS:
        raise InputError(f"no agent {agent!r} is known; there are: {', '.join(AGENTS)}")
    known = AGENTS[agent]
    key = api_key or NO_KEY
    if print_:
        name = model_of(url, key) or model or "default_model"
        show(known, arguments or [], url=url, key=key, model=name)
        return
    program = shutil.which(known.program)
    if program is None:
        raise InputError(f"{known.program} is not installed: {known.install}")
    with server(url, key, model) as (where, name):
        values = {"url": where, "key": key, "model": name}
        command = [program, *known.command(**values)[1:], *(arguments or [])]
        ended = subprocess.run(  # noqa: S603 - the agent that the user has named
            command, env={**os.environ, **known.environment(**values)}, check=False
        )
    raise typer.Exit(ended.returncode)


def show(agent: Agent, more: list[str], **values: str) -> None:
    """Print what a shell needs to start the agent."""
    for name, value in agent.environment(**values).items():
        typer.echo(f"export {name}={shlex.quote(value)}")
    typer.echo(shlex.join([*agent.command(**values), *more]))


def model_of(url: str, key: str) -> str | None:
    """The model of the server at ``url``; None where no server answers.

    :raises InputError: something answers that is no such server, or wants another key.
    """
    opener = build_opener(ProxyHandler({}))
    try:
        asked = Request(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"})  # noqa: S310
        with opener.open(asked, timeout=SECONDS) as answer:
            return str(json.load(answer)["data"][0]["id"])
    except HTTPError as error:
        said = f"{url} answers {error.code}: give its --api-key, or another --url"
        raise InputError(said) from None
    except URLError:
        return None
    except (ValueError, LookupError, TypeError):
        raise InputError(f"{url} is no URL of a server that lists models: give --url") from None


@contextmanager
def server(url: str, key: str, model: str | None) -> Iterator[tuple[str, str]]:
    """URL and model of the server that answers at ``url``, or of one on a free port of its own."""
    found = model_of(url, key)
    if found is not None:
        if model not in {None, found}:
            raise InputError(f"the server at {url} serves {found!r}, not {model!r}: stop it first")
        yield url, found
        return
    command = [sys.executable, "-m", "mlxfill", "serve", "--port", "0"]
    command += [] if model is None else ["--model", model]
    keyed = {} if key == NO_KEY else {"MLXFILL_API_KEY": key}
    with subprocess.Popen(  # noqa: S603 - our own command
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, **keyed}
    ) as process:
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        reading = Thread(target=process.stderr.read)  # or the server would wait for a reader
        try:
            line = process.stderr.readline().strip()
            reading.start()
            where = _address(line)
            if not where:
                raise InputError(f"the server did not start: {line.removeprefix('error: ')}")
            yield where, model_of(where, key) or ""
        finally:
            process.terminate()
            reading.join()


def _address(line: str) -> str:
    """The URL that a server tells when it serves, "" in any other line."""
    found = re.search(r"https?://\S+", line)
    return found[0] if found else ""
