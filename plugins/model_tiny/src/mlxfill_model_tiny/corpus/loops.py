"""Work of an agent on one thing, made of scenarios that build on each other.

Not part of the training set: a model that was trained on single scenarios meets them here in a
row, about the same file, folder or person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill_model_tiny.corpus import coding, daily
from mlxfill_model_tiny.corpus.coding import read_file, rename_in, set_constant_in
from mlxfill_model_tiny.corpus.python_files import python_file
from mlxfill_model_tiny.corpus.words import identifier, path

if TYPE_CHECKING:
    from random import Random

    from mlxfill_model_tiny.corpus.turns import Turn

_APIS = (
    daily.convert,
    daily.event,
    daily.message,
    daily.order,
    daily.person,
    daily.tickets,
    daily.weather,
)


def edit(rng: Random) -> list[Turn]:
    """Edit a file, then look at it or edit it again."""
    file, source = path(rng), python_file(rng)
    turns, edited = rng.choice([rename_in, set_constant_in])(rng, file, source)
    if rng.choice([True, False]):
        return turns + read_file(rng, file, edited)
    return turns + rng.choice([rename_in, set_constant_in])(rng, file, edited)[0]


def grep(rng: Random) -> list[Turn]:
    """Search the code, then open the first file that was found."""
    found = coding.places(rng)
    searched = coding.search_for(rng, identifier(rng), found)
    return searched + read_file(rng, found[0][0], python_file(rng))


def shell(rng: Random) -> list[Turn]:
    """List a folder and run the same tests twice."""
    place = coding.target(rng)
    runs = coding.run_tests_in(rng, place) + coding.run_tests_in(rng, place)
    return coding.list_folder(rng) + runs


def api(rng: Random) -> list[Turn]:
    """Two requests that are answered in JSON, the second of them twice."""
    first, second = rng.sample(_APIS, 2)
    return first(rng) + second(rng) + second(rng)
