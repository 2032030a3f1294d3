"""Options that are written once as a class."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer
from attrs import define
from typer.testing import CliRunner

from mlxfill import grouped


@define
class Place:
    city: Annotated[str, typer.Option("--city", "-c", help="Where.")] = "Lima"
    near: Annotated[list[str] | None, typer.Option(help="Around.")] = None


@define
class Time:
    day: Annotated[int | None, typer.Option(metavar="N", help="When.")] = None


@pytest.fixture
def invoke() -> Any:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @grouped
    def weather(
        ctx: typer.Context, place: Place, time: Time, word: Annotated[str, typer.Argument()] = "sun"
    ) -> None:
        """How the weather is."""
        typer.echo(f"{ctx.command.name} {word} {place.city} {place.near} {time.day}")

    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_fields_are_options_with_their_defaults(invoke: Any) -> None:
    assert invoke().output == "weather sun Lima None None\n"
    given = invoke("rain", "-c", "Oslo", "--near", "a", "--near", "b", "--day", "3")
    assert given.output == "weather rain Oslo ['a', 'b'] 3\n"


def test_the_help_page_shows_them(invoke: Any) -> None:
    page = invoke("--help").output
    assert "How the weather is." in page
    for words in ("-c, --city", "Where.", "--near", "--day N", "When."):
        assert words in page


def test_values_of_another_type_are_refused(invoke: Any) -> None:
    assert invoke("--day", "x").exit_code == 2
