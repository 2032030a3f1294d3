"""Word lists and the small draws from them.

Every draw takes the generator to draw from, so that one seed decides a whole corpus.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


def _words(line: str) -> tuple[str, ...]:
    return tuple(line.split())


VERBS = _words(
    "load save parse merge check count find build split clean sort read pack scan sync trim join "
    "copy move send"
)
NOUNS = _words(
    "user order token cache index config report block item node event file line model frame queue "
    "batch page image key"
)
ARGUMENTS = _words("a b x y n m data text value items path size name left right start end limit")
FOLDERS = _words("src lib app core tools tests docs utils api data web jobs")
CITIES = _words(
    "Paris London Berlin Madrid Rome Oslo Tokyo Cairo Lima Delhi Seoul Vienna Prague Dublin Athens "
    "Boston Chicago Toronto Sydney Nairobi"
)
PEOPLE = _words(
    "Anna Ben Carla David Emma Frank Grace Henry Irene Jack Karen Louis Maria Nina Oscar Paula "
    "Rita Sam Tina Victor"
)
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
CURRENCIES = _words("USD EUR GBP JPY CHF CAD")
SKIES = _words("sunny cloudy rainy windy foggy snowy")
ORDER_STATES = _words("shipped pending delivered cancelled packed")
TAGS = _words("bug docs ui api perf tests infra urgent")
TIMERS = _words("tea pasta break bread call")
APPOINTMENTS = (
    "team meeting",
    "code review",
    "lunch",
    "budget call",
    "design review",
    "planning",
    "release check",
    "interview",
    "training",
    "dentist",
)
NOTES = (
    "the build is green",
    "the report is ready",
    "I will be late",
    "the test failed again",
    "please review my change",
    "lunch is at noon",
    "the server is down",
    "the release is done",
)


def chance(rng: Random, share: float) -> bool:
    """True in ``share`` (0 to 1) of all draws."""
    return rng.random() < share


def number(rng: Random, digits: int) -> int:
    """A number of exactly ``digits`` decimal digits, uniform."""
    return rng.randint(10 ** (digits - 1), 10**digits - 1)


def identifier(rng: Random) -> str:
    """A function name such as ``load_user``."""
    return f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"


def path(rng: Random) -> str:
    """A source file such as ``src/load_user.py``."""
    stem = rng.choice(
        [rng.choice(NOUNS), identifier(rng), f"{rng.choice(NOUNS)}{rng.randint(1, 9)}"]
    )
    return f"{rng.choice(FOLDERS)}/{stem}.py"
