"""What README and docs show works: every command and snippet runs, every link leads somewhere.

A page's blocks run in their order, in one empty folder.  Fences marked ``bash`` and ``python`` run
(all Python between two commands in one program), those marked ``toml`` must be a legal config and,
when they begin with ``# mlxfill.toml``, are put there.  What needs no shell runs in this process: a
new one takes longer to begin than most blocks take.  A line ``<!-- not run: why -->`` before a
fence, or another word after it, leaves it out.  ``my-model`` is a model folder.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen
from typer import Typer
from typer.main import get_group

from mlxfill.cli import main
from mlxfill.cli.app import build
from mlxfill.cli.commands import add_command
from mlxfill.cli.options.invocation import Invocation
from mlxfill.cli.terminal.report import stats_table
from mlxfill.config import load_config
from mlxfill.engine import Stats
from mlxfill.plugins import PluginManager, scan

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(
    r"(?:<!-- (not run): [^\n]+ -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
INSTALLED = re.compile(r"(?<= |'|`)\./((?:core|plugins|examples)[\w/]*)")
CONFIG = "# mlxfill.toml\n"
SHELL = re.compile(r"[|&;<>$`*~(){}']|^(?!mlxfill )", re.MULTILINE)
"""What a block of commands has that only a shell understands."""
SHELL = re.compile(r"[|&;<>$`*~(){}']|^(?!mlxfill )", re.MULTILINE)
"""What a block of commands has that only a shell understands."""
TERM = re.compile(r"^\| (\*.+?\*.*?) \|", re.MULTILINE)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@frozen
class Block:
    """One fenced block of a page."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are run or checked."""
    found = FENCE.findall(page.read_text("utf-8"))
    return [Block(language, text) for left_out, language, text in found if not left_out]


def steps(page: Path) -> Iterator[Block]:
    """The same, with the Python blocks that follow each other in one."""
    for language, group in groupby(blocks(page), key=lambda block: block.language):
        if language == "python":
            yield Block(language, "\n".join(block.text for block in group))
        else:
            yield from group


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """That of a user without a config, with this environment's programs on the path.

    One home for all pages, as a reader has: the cost curve of a model is measured once.
    """
    kept = {name: v for name, v in os.environ.items() if not name.startswith(("MLXFILL_", "XDG_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "HOME": str(tmp_path_factory.mktemp("home"))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a page runs."""
    folder = tmp_path / "work"
    folder.mkdir()
    tiny = PluginManager.load(load_config({})).resolve_model("tiny")
    assert tiny is not None
    (folder / "my-model").symlink_to(tiny)
    return folder


def called(step: Block) -> bool:
    """Run a block in this process; false for one that needs a shell."""
    text = re.sub(r"\\\n\s*", " ", step.text).strip()
    if step.language == "python":
        program = compile(text, "page", "exec", dont_inherit=True)
        exec(program, {"__name__": "__main__"})  # noqa: S102 - the code of the page
        return True
    if SHELL.search(text):
        return False
    for line in text.splitlines():
        assert main(shlex.split(line)[1:]) == 0, line
    return True


@each_page
def test_what_a_page_shows_works(
    page: Path,
    folder: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    for name in {*os.environ} - {*environment}:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for step in steps(page):
        if step.language == "toml":
            load_config(tomllib.loads(step.text))
            if step.text.startswith(CONFIG):
                (folder / "mlxfill.toml").write_text(step.text)
            continue
        if step.language in {"bash", "python"} and not called(step):
            command = ["bash", "-euo", "pipefail", "-c", step.text]
            subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_what_anyone_runs_first_shows_a_gain_and_where_it_came_from(
    page: str, environment: dict[str, str]
) -> None:
    """Without the gate, which goes by a clock: other tests disturb it."""
    ungated = {**environment, "MLXFILL_GATE__ENABLED": "false"}
    shown = {block.language: block.text for block in reversed(blocks(ROOT / page))}
    for command in ([sys.executable, "-c", shown["python"]], ["bash", "-c", shown["bash"]]):
        done = subprocess.run(command, env=ungated, capture_output=True, text=True, check=True)
        told = f"{done.stdout}\n{done.stderr}"
        (gain,) = re.findall(r"([\d.]+) tokens a forward", told) or [
            row.split()[3] for row in told.splitlines() if re.match(r" +48 ", row)
        ]
        assert float(gain) > 1.5
        assert re.search("ngram|echo", told), "which plugins proposed"


def test_the_first_page_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 500


@each_page
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    targets = LINK.findall(page.read_text("utf-8"))
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []
    folders = INSTALLED.findall(page.read_text("utf-8"))
    assert [name for name in folders if not (ROOT / name / "pyproject.toml").exists()] == []


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.stem)
def test_a_page_begins_with_whom_it_is_for(page: Path) -> None:
    title, _, readers, _ = page.read_text("utf-8").split("\n", 3)
    assert title.startswith("# ")
    assert page.stem == "index" or re.fullmatch(r"\*For .+\.\*", readers), readers


def test_the_glossary_has_each_word_once_and_those_of_the_command_line() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    words = [word for term in TERM.findall(text) for word in re.findall(r"\*(.+?)\*", term)]
    assert len(words) == len(set(words)) > 30
    origins = ("sampled", "template", "schema", "echo", "ngram", "draft", "mtp", "grammar")
    assert [origin for origin in origins if f"`{origin}`" not in text] == []
    columns = [str(column.header) for column in stats_table(Stats(), drawn=True).columns]
    others = {"tokens", "tokens/s", "prompt", "prefill", "per forward"}  # plain words
    known = {*words, *(f"{word}s" for word in words)}
    assert [column for column in columns if column not in known | others] == []


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/writing-plugins.md"])
def test_newcomers_are_led_to_the_glossary(page: str) -> None:
    assert "glossary.md)" in (ROOT / page).read_text("utf-8")


@each_page
def test_every_block_says_what_it_is(page: Path) -> None:
    fences = [line for line in page.read_text("utf-8").splitlines() if line.startswith("```")]
    assert len(fences) % 2 == 0
    assert all(len(opening) > 3 for opening in fences[::2])
    assert set(fences[1::2]) <= {"```"}
    marks = re.findall("<!-- not run: ", page.read_text("utf-8"))
    assert len(marks) == len(fences) // 2 - len(blocks(page)), "a mark stands before one block"


def options_of(command: Any) -> Iterator[str]:  # typer's commands share no public class
    """Every word that a command, or one below it, takes as an option."""
    for part in getattr(command, "commands", {"": command}).values():
        if part is not command:
            yield from options_of(part)
            continue
        words = (word for parameter in part.params for word in parameter.opts)
        yield from (word for word in words if word.startswith("-") and word != "--help")


def test_the_page_on_the_command_line_names_every_command_and_option() -> None:
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    for name, command in get_group(build()).commands.items():
        assert f"## mlxfill {name}\n" in text, name
        assert [word for word in options_of(command) if f"`{word}" not in text] == [], name


def test_the_help_pages_do_not_cut_what_a_command_is_for() -> None:
    groups = ["", "plugins", "config", *scan().commands]
    for group in groups:
        command = [sys.executable, "-m", "mlxfill", *group.split(), "--help"]
        page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        cut = [line for line in page.splitlines()[1:] if line.endswith("...")]
        assert cut == [], group


def test_some_page_names_every_command_and_option_of_the_plugins() -> None:
    pages = [page.read_text("utf-8") for page in PAGES]
    common = (ROOT / "docs" / "cli.md").read_text("utf-8")
    for name in scan().commands:
        command: Any = get_group(Typer())
        add_command(command, name, Invocation())
        told = [text for text in pages if f"mlxfill {name}" in text]
        assert re.search(rf"\[`mlxfill {name}\b[^\]]*\]\([\w-]+\.md", common), name
        for word in name.split():
            command = command.commands[word]
        text = "\n".join([common, *told])
        assert [word for word in options_of(command) if f"`{word}" not in text] == [], name
