"""Small Python files for the scenarios to read, write and edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from mlxfill_model_tiny.corpus.words import ARGUMENTS, NOUNS, chance, identifier, number

if TYPE_CHECKING:
    from random import Random

OPERATORS = {"adds": "+", "subtracts": "-", "multiplies": "*", "divides": "/"}
"""What a function is said to do, and its operator."""


@frozen
class PythonFile:
    """A file's text and the names in it."""

    text: str
    functions: tuple[str, ...]
    constant: str
    value: int


def python_file(rng: Random) -> PythonFile:
    """One constant and one or two functions."""
    constant = f"{rng.choice(NOUNS)}_{rng.choice(['LIMIT', 'SIZE', 'COUNT'])}".upper()
    value = number(rng, rng.choice([2, 3]))
    functions = [identifier(rng)]
    if chance(rng, 0.4):
        other = identifier(rng)
        if other not in functions:
            functions.append(other)
    parts = [f"{constant} = {value}\n"] + [_any_function(rng, name) for name in functions]
    return PythonFile("\n".join(parts).rstrip("\n"), tuple(functions), constant, value)


def arithmetic(name: str, left: str, right: str, operator: str) -> str:
    """A function of two arguments that applies one operator."""
    return f"def {name}({left}, {right}):\n    return {left} {operator} {right}\n"


def _any_function(rng: Random, name: str) -> str:
    first, second = rng.sample(ARGUMENTS, 2)
    shape = rng.choice([_arithmetic, _collector, _limiter, _wrapper])
    return shape(rng, name, first, second)


def _arithmetic(rng: Random, name: str, first: str, second: str) -> str:
    return arithmetic(name, first, second, rng.choice(sorted(OPERATORS.values())))


def _collector(_: Random, name: str, first: str, second: str) -> str:
    return (
        f"def {name}({first}):\n    {second} = []\n    for item in {first}:\n"
        f"        {second}.append(item)\n    return {second}\n"
    )


def _limiter(rng: Random, name: str, first: str, second: str) -> str:
    return (
        f"def {name}({first}, {second}={number(rng, 2)}):\n    if {first} > {second}:\n"
        f"        return {second}\n    return {first}\n"
    )


def _wrapper(rng: Random, name: str, first: str, second: str) -> str:
    return (
        f"def {name}({first}):\n    {second} = {identifier(rng)}({first})\n"
        f"    print({second})\n    return {second}\n"
    )
