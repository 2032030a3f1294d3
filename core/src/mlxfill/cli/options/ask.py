"""What is asked: a prompt, chat messages and tools, from arguments, files or standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import define, field
from attrs.converters import optional

from mlxfill.cli.terminal.encoding import as_text
from mlxfill.errors import InputError
from mlxfill.tool_calls.messages import for_template
from mlxfill.tool_calls.tools import check_tools

STDIN = "-"
Message = Mapping[str, Any]


@define
class Ask:
    """The options that make up a question.  ``-`` stands for standard input."""

    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="The question; - or nothing: standard input."),
    ] = field(default=None, converter=optional(as_text))
    prompt_option: Annotated[
        str | None,
        typer.Option("--prompt", "-p", metavar="TEXT", help="The question, as mlx-lm takes it."),
    ] = field(default=None, converter=optional(as_text))
    messages: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Chat messages as JSON, in OpenAI's format."),
    ] = None
    tools: Annotated[
        str | None, typer.Option(metavar="FILE", help="Tools as JSON, in OpenAI's format.")
    ] = None
    system: Annotated[
        str | None,
        typer.Option("--system", "--system-prompt", metavar="TEXT", help="System message."),
    ] = field(default=None, converter=optional(as_text))
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", "--ignore-chat-template", help="Continue the prompt, without chat template."
        ),
    ] = False

    def read(self) -> tuple[str | list[Message], list[Message] | None]:
        """A raw prompt or messages, and the tools.

        :raises InputError: a file is missing or of another form, or there is nothing to ask.
        """
        if self.prompt_option is not None:
            if self.prompt is not None:
                raise InputError("give the prompt as an argument or with --prompt, not both")
            self.prompt = self.prompt_option
        if not self.raw:
            return self._conversation(), read_tools(self.tools)
        for name, value in (
            ("messages", self.messages),
            ("tools", self.tools),
            ("system", self.system),
        ):
            if value is not None:
                raise InputError(f"--raw takes a plain prompt: leave out --{name}")
        return self._prompt(strip=""), None

    def _conversation(self) -> list[Message]:
        """System message, messages of the file, and the prompt as the newest of the user."""
        conversation = [] if self.messages is None else read_messages(self.messages)
        if self.system is not None:
            if any(message["role"] == "system" for message in conversation):
                raise InputError(f"give --system or a system message in {self.messages}, not both")
            conversation.insert(0, {"role": "system", "content": self.system})
        if self.prompt is not None or self.messages is None:
            conversation.append({"role": "user", "content": self._prompt(strip="\n")})
        return conversation

    def _prompt(self, strip: str) -> str:
        """The prompt, without the line break that a shell puts after it (if ``strip`` is one)."""
        if self.prompt is not None and self.prompt != STDIN:
            prompt = self.prompt
        elif self.prompt is None and sys.stdin.isatty():
            raise InputError(
                "no prompt: give one as an argument, with --messages FILE, or through a pipe"
            )
        else:
            prompt = read_text(STDIN, "prompt").removesuffix(strip)
        if not prompt:
            raise InputError("the prompt is empty: at least one character is needed")
        return prompt


def read_messages(file: str) -> list[Message]:
    """Chat messages from a JSON file: a list, or an object with the key ``messages``."""
    value = _json(file, "messages")
    value = value.get("messages") if isinstance(value, dict) else value
    return checked_messages(value, f"--messages {file}")


def checked_messages(value: object, where: str) -> list[Message]:
    """Messages as templates take them.

    :param where: what an error begins with.
    :raises InputError: they are of another form.
    """
    if not isinstance(value, list) or not value:
        raise InputError(f"{where}: must hold a list of messages with role and content")
    try:
        return [*for_template(value)]
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def read_tools(file: str | None) -> list[Message] | None:
    """Tools from a JSON file: a list, or an object with the key ``tools``."""
    if file is None:
        return None
    value = _json(file, "tools")
    value = value.get("tools") if isinstance(value, dict) else value
    return checked_tools(value, f"--tools {file}")


def checked_tools(value: object, where: str) -> list[Message]:
    """Tools, or ``InputError`` that begins with ``where``."""
    if not isinstance(value, list):
        raise InputError(f"{where}: must hold a list of tools in OpenAI's format")
    try:
        check_tools(value)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return value


def _json(file: str, option: str) -> Any:  # noqa: ANN401
    text = read_text(file, option)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"--{option} {file}: is not JSON: {reason}") from error


def read_text(file: str, option: str) -> str:
    """Text of a file or of standard input."""
    try:
        return (sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()).decode()
    except OSError as error:
        raise InputError(f"--{option} {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        where = "standard input" if file == STDIN else f"--{option} {file}"
        raise InputError(f"{where} is not UTF-8 (at byte {error.start})") from error
