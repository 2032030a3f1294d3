"""``--schema``, ``--regex`` and ``--grammar``: what the reply must be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlxfill.errors import InputError


def read_shape(given: Mapping[str, str]) -> Mapping[str, Any]:
    """The option ``schema`` of ``Engine.stream``, from these options of the command line.

    :param given: one of ``schema`` (a file, or JSON itself), ``regex``, ``grammar`` (a file).
    :raises InputError: there are several, or a file is missing or of another form.
    """
    if len(given) > 1:
        raise InputError(f"give one of {', '.join(f'--{name}' for name in given)}, not several")
    if "regex" in given:
        return {"regex": given["regex"]}
    if "grammar" in given:
        return {"lark": _text("grammar", given["grammar"])}
    return _schema(given["schema"])


def _schema(value: str) -> Mapping[str, Any]:
    text = value if value.lstrip().startswith("{") else _text("schema", value)
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"--schema is not JSON: {reason}") from error
    if not isinstance(schema, dict):
        raise InputError("--schema must be a JSON object")
    return schema


def _text(option: str, file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except OSError as error:
        raise InputError(f"--{option} {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"--{option} {file} is not UTF-8 (at byte {error.start})") from error
