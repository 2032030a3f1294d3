"""The pip command that brings a distribution: its folder in a clone, else its name.

Which distributions this project has is written in the metadata of the core: an extra for each word
that asks for one of them, such as the name of a command.
"""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

if TYPE_CHECKING:
    from importlib.metadata import Distribution

CORE = "mlxfill"
NEEDED = re.compile(rf"{CORE}-([\w-]+)\b.*;.*\bextra == ['\"]([\w-]+)['\"]")
"""What an extra of the core brings of this project, as metadata has it."""


def pip_install(name: str, *, extra: str = "", options: str = "") -> str:
    """``pip install ./plugins/again`` for ``mlxfill-again``, if the core came from a clone with it.

    :param name: of a distribution; one that the clone does not hold is named as it is.
    :param extra: of that distribution.
    :param options: of pip.
    """
    folder = _in_clone(name)
    target = name if folder is None else _shown(folder)
    if extra:
        target = shlex.quote(f"{target}[{extra}]")
    elif folder is not None:
        target = shlex.quote(target)
    return " ".join(["pip install", *([options] if options else []), target])


def to_install(extra: str) -> str:
    """The commands that bring what an extra of the core's metadata stands for; "" for none."""
    return " or ".join(pip_install(f"{CORE}-{name}") for name in brought_by(extra))


def brought_by(extra: str) -> tuple[str, ...]:
    """The plugins of this project behind an extra of the core's metadata; () for none."""
    return extras().get(extra, ())


@cache
def extras() -> dict[str, tuple[str, ...]]:
    """The plugins of this project behind each extra of the core's metadata.

    A plugin has the name of its distribution, but for the first word.
    """
    found: dict[str, tuple[str, ...]] = {}
    try:
        lines = requires(CORE) or []
    except PackageNotFoundError:  # run from its sources alone
        return found
    for line in lines:
        if match := NEEDED.fullmatch(line):
            name, extra = match.groups()
            found[extra] = (*found.get(extra, ()), name)
    return found


def source_folder(origin: Distribution | None) -> tuple[Path, bool] | None:
    """The folder that a distribution was installed from (PEP 610), and whether it is editable.

    None for one that came from an index.
    """
    text = origin and origin.read_text("direct_url.json")
    try:
        found = json.loads(text or "{}")
        editable = bool(found["dir_info"].get("editable", False))
        return Path(url2pathname(urlsplit(found["url"]).path)), editable
    except (ValueError, LookupError, TypeError, AttributeError):  # PEP 610 has more than folders
        return None


def _in_clone(name: str) -> Path | None:
    """The folder of a distribution in the clone that the core was installed from."""
    try:
        source = source_folder(distribution(CORE))
    except PackageNotFoundError:
        return None
    if source is None:
        return None
    plugin = name.removeprefix(f"{CORE}-").replace("-", "_")
    folder = source[0] if name == CORE else source[0].parent / "plugins" / plugin
    return folder if (folder / "pyproject.toml").is_file() else None


def _shown(folder: Path) -> str:
    """The folder as one may type it where one is."""
    here = Path.cwd()
    return (
        f"./{folder.relative_to(here).as_posix()}" if folder.is_relative_to(here) else str(folder)
    )
