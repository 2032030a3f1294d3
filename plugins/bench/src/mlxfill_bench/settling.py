"""Writes settings into a config file and leaves all else in it as it is, comments included."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from mlxfill import ConfigError, load_config, replacing
from mlxfill_bench.options import VARIABLES

if TYPE_CHECKING:
    from mlxfill import Config

FILE = "mlxfill.toml"
TABLE = " [tool.mlxfill]"
"""How a config calls its place inside a ``pyproject.toml``."""
MARK = "\ufeff"
"""What some editors put in front of UTF-8."""

ENTRY = re.compile(r"""(?P<before>\s*(["'])(?P<name>[^"'\\]+)\2)(?:\s*,)?(?P<behind>\s*(?:#.*)?)""")
"""A line that holds one entry of a list."""

Settings = Mapping[tuple[str, ...], Any]


@frozen
class Change:
    """What a file holds and what it shall hold.  ``before`` is None where there is no file."""

    path: Path
    before: str | None
    after: str

    def diff(self) -> str:
        """As ``diff -u`` prints it; "" when nothing changes."""
        old, new = (self.before or "").splitlines(), self.after.splitlines()
        return "\n".join(unified_diff(old, new, str(self.path), str(self.path), lineterm=""))

    def write(self) -> None:
        """Put the new content in the file's place, whole or not at all.

        :raises ConfigError: it cannot be written, or was changed meanwhile.
        """
        target = self.path.resolve()
        try:
            if (_read(target) if target.exists() else None) != self.before:
                raise ConfigError(f"{self.path} was changed meanwhile: tune again")
            with replacing(target, mode=0o644) as file:
                file.write(self.after.encode())
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from error


def settle(config: Config, settings: Settings) -> Change:
    """The change that gives ``config`` these values, in the file that it came from.

    :param settings: values by the path of their keys; None: the key is left out.
    :raises ConfigError: a variable of the environment overrides one of the keys, or the file
        cannot be changed without touching more than these keys.
    """
    label = config.file or FILE
    path = Path(label.removesuffix(TABLE))
    for key in settings:
        place = config.sources.get(".".join(key), label)
        if place != label:
            raise ConfigError(f"${place} overrides {'.'.join(key)}: unset it before you tune")
    before = _read(path) if config.file else None
    inside = ("tool", "mlxfill") if label.endswith(TABLE) else ()
    try:
        after = settled_text(before or "", settings, inside)
    except Exception as error:  # tomlkit raises many kinds
        raise ConfigError(f"{path} cannot be changed by a program: {error}") from error
    _check(config, settings, after, inside, path)
    return Change(path, before, after)


def settled_text(text: str, settings: Settings, inside: tuple[str, ...] = ()) -> str:
    """A TOML document with other values; what else it holds stays to the letter.

    :param inside: the table that holds the config.
    """
    import tomlkit

    mark = MARK if text.startswith(MARK) else ""
    document = tomlkit.parse(text.removeprefix(MARK))
    table: Any = document
    for name in inside:
        table = table[name]
    for key, value in settings.items():
        *outer, last = _shortened(table, key)
        holder = table
        for name in outer:
            holder = holder.setdefault(name, _table_for(holder))
        if value is None:
            holder.pop(last, None)
        elif not isinstance(held := holder.get(last), list):
            holder[last] = value
        elif list(held) != value:
            holder[last] = _relisted(held, value)
    after = tomlkit.dumps(document)
    if "\n" in text and text.count("\n") == text.count("\r\n"):  # new lines end as the others do
        after = after.replace("\r\n", "\n").replace("\n", "\r\n")
    return mark + after


def _table_for(holder: object) -> Any:  # noqa: ANN401 - tomlkit's
    """An empty table of a kind that may stand in ``holder``."""
    import tomlkit
    from tomlkit.items import InlineTable

    return tomlkit.inline_table() if isinstance(holder, InlineTable) else tomlkit.table()


def _relisted(listed: Any, names: Sequence[str]) -> Any:  # noqa: ANN401 - tomlkit's
    """A list of ``names`` in the place of ``listed``, with its comments.

    In a list with an entry a line each takes along what stands above and behind it; of one that
    goes, what stands above it stays.  Raises ``ValueError`` where comments would be lost.
    """
    import tomlkit

    text = listed.as_string()
    lines = _relined(text, names)
    if lines is not None:
        return tomlkit.parse(f"x = {lines}")["x"]
    if "#" in text:
        wanted = tomlkit.item(list(names)).as_string()
        raise ValueError(f"comments would be lost; let the list be {wanted}")
    return list(names)


def _relined(text: str, names: Sequence[str]) -> str | None:
    """A list of ``names`` like the one in ``text``; None unless that has an entry a line."""
    head, *lines = text.split("\n")
    tail = lines.pop() if lines else ""
    if (head.strip(), tail.strip()) != ("[", "]"):
        return None
    own: dict[str, list[str]] = {}
    above: list[str] = []
    indent = "  "
    for line in lines:
        entry = ENTRY.fullmatch(line)
        if entry is None and line.strip()[:1] not in {"", "#"}:
            return None
        if line.strip():
            indent = line[: len(line) - len(line.lstrip())]
        if entry is None:
            above.append(line)
        elif entry["name"] in names:
            own[entry["name"]] = [*above, f"{entry['before']},{entry['behind']}"]
            above = []
    made = [line for name in names for line in own.get(name, [f'{indent}"{name}",'])]
    return "\n".join([head, *made, *above, tail])


def _shortened(table: Any, key: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ANN401 - tomlkit's
    """``plugins = [...]`` is short for the key ``enabled`` under ``[plugins]``."""
    listed = isinstance(table.get("plugins"), list)
    return ("plugins",) if listed and key == ("plugins", "enabled") else key


def _check(
    config: Config, settings: Settings, text: str, inside: tuple[str, ...], path: Path
) -> None:
    """Read the new text as mlxfill will: it must differ from the old in these settings only."""
    try:
        values: Any = tomllib.loads(text.removeprefix(MARK))
        for name in inside:
            values = values[name]
        read = load_config(values)
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{path} cannot be changed by a program: {error}") from error
    enabled = tuple(settings["plugins", "enabled"])
    wanted = evolve(
        config, draft=settings["draft",], plugins=evolve(config.plugins, enabled=enabled)
    )
    overridden = {place for place in config.sources.values() if place.startswith(VARIABLES)}
    if read != wanted and not overridden:
        raise ConfigError(f"{path} cannot be changed by a program: write the lines by hand")


def _read(path: Path) -> str:
    """The file's text with its line ends and mark as they are."""
    with path.open(encoding="utf-8", newline="") as file:
        return file.read()
