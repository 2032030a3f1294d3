"""Scenarios about code: an ask, the tool calls that it needs and the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from mlxfill_model_tiny.corpus.python_files import (
    OPERATORS,
    PythonFile,
    arithmetic,
    python_file,
)
from mlxfill_model_tiny.corpus.turns import Turn, call, returned, say, user
from mlxfill_model_tiny.corpus.words import (
    ARGUMENTS,
    FOLDERS,
    NOUNS,
    identifier,
    number,
    path,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random


def read(rng: Random) -> list[Turn]:
    """Show a file: the answer quotes what the tool returned."""
    return read_file(rng, path(rng), python_file(rng))


def read_file(rng: Random, file: str, source: PythonFile) -> list[Turn]:
    """Show this file."""
    ask = rng.choice(
        [
            "Show me {}.",
            "What is in {}?",
            "Open {} for me.",
            "Read {} please.",
            "Can you print {}?",
        ]
    )
    names = " and ".join(f"`{name}`" for name in source.functions)
    return [
        user(ask.format(file)),
        call("read_file", f"The user wants to see {file}. I will read it.", path=file),
        returned(source.text),
        say(
            f"Here is `{file}`:\n```python\n{source.text}\n```\n"
            f"It defines {names} and sets `{source.constant}` to {source.value}."
        ),
    ]


def rename(rng: Random) -> list[Turn]:
    """Rename a function: read, edit, quote the new file."""
    return rename_in(rng, path(rng), python_file(rng))[0]


def rename_in(rng: Random, file: str, source: PythonFile) -> tuple[list[Turn], PythonFile]:
    """Rename a function of this file; also returns the file as it is then."""
    old = source.functions[0]
    new = identifier(rng)
    while new in source.functions:
        new = identifier(rng)
    old_line = next(line for line in source.text.split("\n") if line.startswith(f"def {old}("))
    new_line = old_line.replace(f"def {old}(", f"def {new}(", 1)
    edited = source.text.replace(old_line, new_line, 1)
    ask = rng.choice(["Rename {} to {} in {}.", "Please rename the function {} to {} in {}."])
    turns = [
        user(ask.format(old, new, file)),
        call("read_file", f"I must see {file} before I edit it.", path=file),
        returned(source.text),
        call("edit_file", f"I will rename {old} to {new}.", path=file, old=old_line, new=new_line),
        returned({"ok": True, "changed": 1}),
        say(
            f"I renamed `{old}` to `{new}` in `{file}`. The file is now:\n```python\n{edited}\n```"
        ),
    ]
    return turns, evolve(source, text=edited, functions=(new, *source.functions[1:]))


def set_constant(rng: Random) -> list[Turn]:
    """Change the value of a constant: read, edit, report."""
    return set_constant_in(rng, path(rng), python_file(rng))[0]


def set_constant_in(rng: Random, file: str, source: PythonFile) -> tuple[list[Turn], PythonFile]:
    """Change the constant of this file; also returns the file as it is then."""
    name, value = source.constant, number(rng, rng.choice([2, 3]))
    ask = rng.choice(["Set {} to {} in {}.", "Change {} to {} in {}."])
    old_line, new_line = f"{name} = {source.value}", f"{name} = {value}"
    turns = [
        user(ask.format(name, value, file)),
        call("read_file", f"I must see {file} before I edit it.", path=file),
        returned(source.text),
        call(
            "edit_file",
            f"I will set {name} to {value}.",
            path=file,
            old=old_line,
            new=new_line,
        ),
        returned({"ok": True, "changed": 1}),
        say(f"I changed `{name}` from {source.value} to {value} in `{file}`."),
    ]
    edited = source.text.replace(old_line, new_line, 1)
    return turns, evolve(source, text=edited, value=value)


def write(rng: Random) -> list[Turn]:
    """Write a function to a new file: the longest argument of the corpus."""
    file, name, verb = path(rng), identifier(rng), rng.choice(sorted(OPERATORS))
    left, right = rng.sample(ARGUMENTS, 2)
    code = arithmetic(name, left, right, OPERATORS[verb])
    return [
        user(f"Create {file} with a function {name} that {verb} {left} and {right}."),
        call("write_file", f"I will write {name} to {file}.", path=file, content=code),
        returned({"ok": True, "bytes": len(code)}),
        say(
            f"I created `{file}` with this function:\n```python\n{code}```\n"
            f"It has {len(code)} bytes."
        ),
    ]


def search(rng: Random) -> list[Turn]:
    """Find a name in the code: the answer lists the places."""
    return search_for(rng, identifier(rng), places(rng))


def places(rng: Random) -> list[tuple[str, int]]:
    """One to three files, each with the number of a line."""
    return [(path(rng), rng.randint(2, 99)) for _ in range(rng.randint(1, 3))]


def search_for(rng: Random, name: str, found: Sequence[tuple[str, int]]) -> list[Turn]:
    """Find this name in these places."""
    lines = [
        f"{file}:{line}: {rng.choice(ARGUMENTS)} = {name}({rng.choice(ARGUMENTS)})"
        for file, line in found
    ]
    ask = rng.choice(["Where is {} used?", "Find {} in the code.", "Search the code for {}."])
    bullets = "\n".join(f"- {file} on line {line}" for file, line in found)
    noun = "place" if len(found) == 1 else "places"
    return [
        user(ask.format(name)),
        call("search_code", f"I will search the code for {name}.", query=name),
        returned("\n".join(lines)),
        say(f"I found `{name}` in {len(found)} {noun}:\n{bullets}"),
    ]


def run_tests(rng: Random) -> list[Turn]:
    """Run pytest: the answer counts what passed."""
    return run_tests_in(rng, target(rng))


def target(rng: Random) -> str:
    """A file or a folder of tests."""
    return rng.choice([f"tests/test_{rng.choice(NOUNS)}.py", f"{rng.choice(FOLDERS)}/"])


def run_tests_in(rng: Random, place: str) -> list[Turn]:
    """Run pytest there."""
    passed, failed = rng.randint(2, 60), rng.choice([0, 0, 1])
    if failed:
        case = f"test_{identifier(rng)}"
        output = f"FAILED {place}::{case}\n{passed} passed, 1 failed"
        answer = f"One test failed: `{case}`. The other {passed} tests passed."
    else:
        output = f"{passed} passed"
        answer = f"All {passed} tests in `{place}` passed."
    ask = rng.choice(["Run the tests in {}.", "Run pytest on {}.", "Do the tests in {} pass?"])
    return [
        user(ask.format(place)),
        call("run_command", f"I will run pytest on {place}.", command=f"pytest {place}"),
        returned(output),
        say(answer),
    ]


def list_folder(rng: Random) -> list[Turn]:
    """List a folder: the answer repeats the names."""
    folder = f"{rng.choice(FOLDERS)}/{rng.choice(NOUNS)}"
    names = [path(rng).split("/")[1] for _ in range(rng.randint(2, 5))]
    ask = rng.choice(["List {}.", "Which files are in {}?", "Show the files in {}."])
    bullets = "\n".join(f"- {name}" for name in names)
    return [
        user(ask.format(folder)),
        call("list_dir", f"I will list {folder}.", path=folder),
        returned("\n".join(names)),
        say(f"There are {len(names)} files in `{folder}`:\n{bullets}"),
    ]
