"""Which file holds the config, and what that file says."""

from __future__ import annotations

import re
import reprlib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxfill.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE_NAME = "mlxfill.toml"
VARIABLE = "MLXFILL_CONFIG"


def read_config(
    named: Path | None, environ: Mapping[str, str]
) -> tuple[str | None, dict[str, Any]]:
    """The place that holds the config and what stands there; ``(None, {})`` when there is none.

    First of ``named``, ``$MLXFILL_CONFIG``, ``mlxfill.toml`` and the table ``[tool.mlxfill]`` of
    ``pyproject.toml`` in the working folder, and ``mlxfill.toml`` in the user's config folder.

    :raises ConfigError: a named file is missing, or a file is unreadable or no TOML.
    """
    if named is None and environ.get(VARIABLE):
        named = Path(environ[VARIABLE])
    if named is not None:
        return _named(named)
    for path in _places():
        values = _read(path)
        if values is not None:
            return _label(path), values
    return None, {}


def _named(path: Path) -> tuple[str, dict[str, Any]]:
    values = _read(path)
    if values is None:
        what = "has no table [tool.mlxfill]" if path.exists() else "does not exist"
        raise ConfigError(f"config file {str(path)!r} {what}; check --config and ${VARIABLE}")
    return _label(path), values


def _places() -> Iterator[Path]:
    yield Path(FILE_NAME)
    yield Path("pyproject.toml")
    from platformdirs import user_config_path

    yield user_config_path("mlxfill", appauthor=False) / FILE_NAME


def _label(path: Path) -> str:
    return f"{path} [tool.mlxfill]" if path.name == "pyproject.toml" else str(path)


def _read(path: Path) -> dict[str, Any] | None:
    """The config in a file; None when the file is missing or a project's without our table."""
    try:
        text = path.read_text("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (at byte {error.start})") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    values = _parse(text, path)
    return _tool_table(values, path) if path.name == "pyproject.toml" else values


def _tool_table(values: dict[str, Any], path: Path) -> dict[str, Any] | None:
    tool = values.get("tool")
    ours = tool.get("mlxfill") if isinstance(tool, dict) else None
    if ours is None or isinstance(ours, dict):
        return ours
    raise ConfigError(f"{path}: tool.mlxfill must be a table, not {reprlib.repr(ours)}")


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(f"{path} is not valid TOML: nested too deeply") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}{_hint(text)}") from error


def _hint(text: str) -> str:
    """TOML has no place for a list and tables of one name: say where the list goes."""
    listed = re.search(r"^\s*plugins\s*=", text, re.MULTILINE)
    settled = re.search(r"^\s*\[\s*(tool\.mlxfill\.)?plugins\b", text, re.MULTILINE)
    return "; write 'enabled = [...]' under [plugins]" if listed and settled else ""
