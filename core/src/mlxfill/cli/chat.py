"""``mlxfill chat``: a conversation on the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import attrs
import typer
from attrs import define, field
from attrs.converters import optional

from mlxfill.cli.groups import grouped
from mlxfill.cli.options.ask import read_tools
from mlxfill.cli.options.decoding import Decoding
from mlxfill.cli.options.invocation import invocation
from mlxfill.cli.options.loading import Loading
from mlxfill.cli.terminal.encoding import as_text
from mlxfill.errors import InputError
from mlxfill.installing import to_install

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from rich.console import Console

    from mlxfill.cli.options.ask import Message
    from mlxfill.engine import Engine, Result

HELP = """/reset         forget the conversation
/system TEXT   set the system message (without TEXT: none) and start anew
/stats         what the last reply cost
/quit          leave; so does Ctrl-D.  Ctrl-C stops a reply"""


class Talker(Protocol):
    """A conversation with an engine or with a server."""

    system: str | None
    last: Result | None

    @property
    def engine(self) -> Engine | None:
        """The engine, if it is in this process."""

    def open(
        self,
        text: str,
        *,
        cancel: threading.Event | None,
        on_prefill_progress: Callable[[int, int], None] | None,
    ) -> Any:  # noqa: ANN401 - a run of its own kind
        """Begin a turn."""

    def thoughts(self, run: Any) -> Callable[[str], bool]:  # noqa: ANN401
        """Told the texts of its reply in turn: whether each is reasoning."""

    def close(self, run: Any) -> Result:  # noqa: ANN401
        """End it."""

    def reset(self) -> None:
        """Forget everything but the system message."""

    def forget_turn(self) -> None:
        """As if the newest line had not been said."""


@define
class Talk:
    """What holds for the whole conversation."""

    system: Annotated[
        str | None,
        typer.Option("--system", "--system-prompt", metavar="TEXT", help="System message."),
    ] = field(default=None, converter=optional(as_text))
    tools: Annotated[
        str | None, typer.Option(metavar="FILE", help="Tools as JSON, in OpenAI's format.")
    ] = None
    origins: Annotated[
        bool, typer.Option("--origins", help="Colour each token by where it came from.")
    ] = False
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Talk to a server, in OpenAI's manner, in its place."),
    ] = None


@grouped
def chat(ctx: typer.Context, loading: Loading, decoding: Decoding, talk: Talk) -> None:
    """Talk to a model, one line a turn.  Write /help for what else can be said."""
    tools = read_tools(talk.tools)
    config = invocation(ctx).config()
    decoding.check(config)
    drawn = decoding.draws(config)
    if talk.url is not None:
        _remote(talk, loading, decoding, tools, drawn=drawn)
        return

    from rich.console import Console

    from mlxfill.cli.conversation import Conversation
    from mlxfill.cli.terminal.report import print_faults
    from mlxfill.cli.terminal.waiting import waiting

    errors = Console(stderr=True, highlight=False)
    with waiting(errors, f"loading {loading.model_name(config)}"):
        engine = loading.engine(config)
        engine.prepare()
    print_faults(errors, engine.faults)
    with engine:
        options = decoding.for_engine(engine)
        conversation = Conversation(engine, tools, options, talk.system)
        _loop(conversation, errors, origins=talk.origins, drawn=drawn)


def _remote(
    talk: Talk, loading: Loading, decoding: Decoding, tools: list[Message] | None, *, drawn: bool
) -> None:
    """The same with a server, by the plugin that speaks to one."""
    from rich.console import Console

    from mlxfill.plugins import scan
    from mlxfill.plugins.discovery import only

    for name, value in attrs.asdict(loading).items():
        if value and name != "model":
            option = name.replace("_", "-")
            raise InputError(f"--{option} is the server's to decide: leave it out beside --url")
    claims = scan().chat.get("url")
    if not claims:
        raise InputError(f"chat --url comes with a plugin: {to_install('chat-url')}")
    converse: Any = only("chat option", claims).load()
    conversation = converse(
        talk.url,
        model=loading.model,
        tools=tools,
        options=decoding.given(),
        system=talk.system,
    )
    errors = Console(stderr=True, highlight=False)
    _loop(conversation, errors, origins=talk.origins, drawn=drawn)


def _loop(conversation: Talker, errors: Console, *, origins: bool, drawn: bool) -> None:
    """Read lines until there are no more, and answer each.

    :raises typer.Exit: 1 when lines came from a pipe or file, and one of them was not answered.
    """
    failed, interactive = False, sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401 - gives input() editing and the lines of before

        errors.print("/help says what can be done, /quit leaves", style="dim")
    while True:
        try:
            line = input("> " if interactive else "").strip()
        except EOFError:
            break
        except UnicodeDecodeError as error:
            raise InputError(f"standard input is not UTF-8 (at byte {error.start})") from error
        except KeyboardInterrupt:
            errors.print("\n/quit or Ctrl-D leaves", style="dim")
            continue
        if line in ("/quit", "/exit"):
            break
        if line.startswith("/"):
            _obey(conversation, line, errors, drawn=drawn)
        elif line:
            failed |= not _answer(conversation, line, errors, origins=origins)
    if failed and not interactive:  # nobody was there to see it
        raise typer.Exit(1)


def _obey(conversation: Talker, line: str, errors: Console, *, drawn: bool) -> None:
    """Carry out a line that begins with a slash."""
    word, _, rest = line.partition(" ")
    if word == "/reset":
        conversation.reset()
    elif word == "/system":
        conversation.system = rest.strip() or None
        conversation.reset()
    elif word == "/stats":
        _tell_costs(conversation, errors, drawn=drawn)
    elif word == "/help":
        errors.print(HELP)
    else:
        errors.print(f"no command {word}; there are:\n{HELP}", markup=False)


def _tell_costs(conversation: Talker, errors: Console, *, drawn: bool) -> None:
    """What the last reply cost."""
    from mlxfill.cli.terminal.report import print_left_out, print_stats

    if conversation.last is None:
        errors.print("nothing was said yet")
        return
    stats = conversation.last.stats
    print_stats(errors, stats, drawn=drawn)
    print_left_out(errors, stats, conversation.engine)


def _answer(conversation: Talker, line: str, errors: Console, *, origins: bool) -> bool:
    """One turn, if it can be.  What goes wrong in it is told, and the conversation goes on."""
    from rich.console import Console

    from mlxfill.cli.terminal.interrupt import stoppable
    from mlxfill.cli.terminal.origins import legend
    from mlxfill.cli.terminal.report import print_cut, print_faults
    from mlxfill.cli.terminal.waiting import prefill_bar
    from mlxfill.cli.terminal.writer import stream_out
    from mlxfill.errors import MlxfillError

    try:
        with stoppable(conversation.engine) as stop, prefill_bar(errors) as progress:
            run = conversation.open(line, cancel=stop, on_prefill_progress=progress)
            stream_out(Console(), run, conversation.thoughts(run), origins=origins)
            result = conversation.close(run)
    except MlxfillError as error:
        conversation.forget_turn()
        errors.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        return False
    except KeyboardInterrupt:  # a second Ctrl-C, in the middle of something
        conversation.forget_turn()
        return True
    print_cut(errors, result)
    print_faults(errors, result.faults)
    if origins:
        errors.print(legend(result.origins))
    return True
