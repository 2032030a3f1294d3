"""``mlxfill chat``: a conversation on the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import define

from mlxfill.cli.ask import read_tools
from mlxfill.cli.decoding import Decoding
from mlxfill.cli.groups import grouped
from mlxfill.cli.invocation import invocation
from mlxfill.cli.loading import Loading

if TYPE_CHECKING:
    from rich.console import Console

    from mlxfill.cli.conversation import Conversation

HELP = """/reset         forget the conversation
/system TEXT   set the system message (without TEXT: none) and start anew
/stats         what the last reply cost
/quit          leave; so does Ctrl-D.  Ctrl-C stops a reply"""


@define
class Talk:
    """What holds for the whole conversation."""

    system: Annotated[
        str | None,
        typer.Option("--system", "--system-prompt", metavar="TEXT", help="System message."),
    ] = None
    tools: Annotated[
        str | None, typer.Option(metavar="FILE", help="Tools as JSON, in OpenAI's format.")
    ] = None
    origins: Annotated[
        bool, typer.Option("--origins", help="Colour each token by where it came from.")
    ] = False


@grouped
def chat(ctx: typer.Context, loading: Loading, decoding: Decoding, talk: Talk) -> None:
    """Talk to a model, one line a turn.  Write /help for what else can be said."""
    tools = read_tools(talk.tools)
    config = invocation(ctx).config()
    decoding.check(config)

    from rich.console import Console

    from mlxfill.cli.conversation import Conversation
    from mlxfill.cli.report import print_faults
    from mlxfill.cli.waiting import waiting

    errors = Console(stderr=True, highlight=False)
    with waiting(errors, f"loading {loading.model_name(config)}"):
        engine = loading.engine(config)
    print_faults(errors, engine.faults)
    with engine:
        options = decoding.for_engine(engine)
        conversation = Conversation(engine, tools, options, talk.system)
        _loop(conversation, errors, origins=talk.origins)


def _loop(conversation: Conversation, errors: Console, *, origins: bool) -> None:
    """Read lines until there are no more, and answer each."""
    interactive = sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401 - gives input() editing and the lines of before

        errors.print("/help says what can be done, /quit leaves", style="dim")
    while True:
        try:
            line = input("> " if interactive else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            errors.print("\n/quit or Ctrl-D leaves", style="dim")
            continue
        if line in ("/quit", "/exit"):
            return
        if line.startswith("/"):
            _obey(conversation, line, errors)
        elif line:
            _answer(conversation, line, errors, origins=origins)


def _obey(conversation: Conversation, line: str, errors: Console) -> None:
    """Carry out a line that begins with a slash."""
    word, _, rest = line.partition(" ")
    if word == "/reset":
        conversation.reset()
    elif word == "/system":
        conversation.system = rest.strip() or None
        conversation.reset()
    elif word == "/stats":
        from mlxfill.cli.report import stats_table

        last = conversation.last
        errors.print("nothing was said yet" if last is None else stats_table(last.stats))
    elif word == "/help":
        errors.print(HELP)
    else:
        errors.print(f"no command {word}; there are:\n{HELP}", markup=False)


def _answer(conversation: Conversation, line: str, errors: Console, *, origins: bool) -> None:
    """One turn.  What goes wrong in it is told, and the conversation goes on."""
    from rich.console import Console

    from mlxfill.cli.interrupt import stoppable
    from mlxfill.cli.origins import legend
    from mlxfill.cli.report import print_faults
    from mlxfill.cli.waiting import prefill_bar
    from mlxfill.cli.writer import stream_out
    from mlxfill.errors import MlxfillError

    try:
        with stoppable(conversation.engine) as stop, prefill_bar(errors) as progress:
            run = conversation.open(line, cancel=stop, on_prefill_progress=progress)
            stream_out(Console(), run, origins=origins)
            result = conversation.close(run)
    except MlxfillError as error:
        errors.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        return
    except KeyboardInterrupt:  # a second Ctrl-C, in the middle of something
        conversation.forget_turn()
        return
    print_faults(errors, result.faults)
    if origins:
        errors.print(legend(result.origins))
