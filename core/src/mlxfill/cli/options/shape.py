"""``--schema``, ``--regex`` and ``--grammar``: what the reply must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlxfill import exactjson
from mlxfill.cli.options.ask import read_text
from mlxfill.cli.terminal.encoding import as_text
from mlxfill.errors import InputError


def read_shape(given: Mapping[str, str]) -> Mapping[str, Any]:
    """The option ``schema`` of ``Engine.stream``, from these options of the command line.

    :param given: one of ``schema`` (a file, or JSON itself), ``regex``, ``grammar`` (a file); the
        file ``-`` is standard input.
    :raises InputError: there are several, or a file is missing or of another form.
    """
    if len(given) > 1:
        raise InputError(f"give one of {', '.join(f'--{name}' for name in given)}, not several")
    if "regex" in given:
        return {"regex": given["regex"]}
    if "grammar" in given:
        return {"lark": read_text(given["grammar"], "grammar")}
    return _schema(given["schema"])


def _schema(value: str) -> Mapping[str, Any]:
    inline = value.lstrip().startswith("{")
    where = "--schema" if inline else f"--schema {value}:"
    try:
        schema = exactjson.loads(as_text(value) if inline else read_text(value, "schema"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        reason = str(error) or type(error).__name__
        raise InputError(f"{where} is not JSON: {reason}") from error
    if not isinstance(schema, dict):
        raise InputError(f"{where} must be a JSON object")
    return schema
