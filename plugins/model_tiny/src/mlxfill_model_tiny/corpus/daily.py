"""Scenarios of every day: an ask, the tool call that it needs and the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill_model_tiny.corpus.facts import FACTS
from mlxfill_model_tiny.corpus.turns import Turn, call, returned, say, user
from mlxfill_model_tiny.corpus.words import (
    APPOINTMENTS,
    CITIES,
    CURRENCIES,
    DAYS,
    NOTES,
    NOUNS,
    ORDER_STATES,
    PEOPLE,
    SKIES,
    TAGS,
    TIMERS,
    VERBS,
    number,
)

if TYPE_CHECKING:
    from random import Random


def weather(rng: Random) -> list[Turn]:
    """The weather in a city, in one of two units."""
    city, unit = rng.choice(CITIES), rng.choice(["celsius", "fahrenheit"])
    degrees, sky, wind = number(rng, 2), rng.choice(SKIES), number(rng, 2)
    ask = rng.choice(
        [
            "What is the weather in {} in {}?",
            "Tell me the weather in {}, in {}.",
            "Weather for {} in {} please.",
        ]
    )
    return [
        user(ask.format(city, unit)),
        call("get_weather", f"The user asks about the weather in {city}.", city=city, unit=unit),
        returned({"city": city, "temperature": degrees, "sky": sky, "wind": wind}),
        say(f"It is {sky} in {city} with {degrees} degrees {unit} and a wind of {wind}."),
    ]


def local_time(rng: Random) -> list[Turn]:
    """The time in a city."""
    city, time = rng.choice(CITIES), f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    ask = rng.choice(["What time is it in {}?", "Tell me the time in {}."])
    return [
        user(ask.format(city)),
        call("get_time", f"The user asks for the time in {city}.", city=city),
        returned({"city": city, "time": time}),
        say(f"It is {time} in {city}."),
    ]


def convert(rng: Random) -> list[Turn]:
    """An amount of money in another currency; the result keeps its trailing zeros."""
    source, target = rng.sample(CURRENCIES, 2)
    amount = number(rng, rng.choice([2, 3]))
    result = f"{number(rng, 3)}.{rng.randint(10, 99)}"
    ask = rng.choice(["Convert {} {} to {}.", "How much is {} {} in {}?"])
    return [
        user(ask.format(amount, source, target)),
        call(
            "convert_currency",
            f"I will convert {source} to {target}.",
            amount=amount,
            source=source,
            target=target,
        ),
        returned(f'{{"result": {result}, "target": "{target}"}}'),
        say(f"{amount} {source} is {result} {target}."),
    ]


def calculate(rng: Random) -> list[Turn]:
    """One operation on two numbers."""
    left, right, operator = number(rng, 2), number(rng, 2), rng.choice("+-*")
    expression = f"{left} {operator} {right}"
    ask = rng.choice(["What is {}?", "Compute {}.", "Calculate {} for me."])
    result = {"+": left + right, "-": left - right, "*": left * right}[operator]
    return [
        user(ask.format(expression)),
        call("calculate", f"I will calculate {expression}.", expression=expression),
        returned(str(result)),
        say(f"{expression} = {result}"),
    ]


def message(rng: Random) -> list[Turn]:
    """A message to a person."""
    person, note = rng.choice(PEOPLE), rng.choice(NOTES)
    ask = rng.choice(["Tell {} that {}.", "Send {} a message: {}."])
    return [
        user(ask.format(person, note)),
        call("send_message", f"I will send a message to {person}.", to=person, text=note),
        returned({"sent": True, "id": number(rng, 4)}),
        say(f"I told {person} that {note}."),
    ]


def event(rng: Random) -> list[Turn]:
    """An entry in the calendar."""
    title, day = rng.choice(APPOINTMENTS), rng.choice(DAYS)
    time = f"{rng.randint(8, 18):02d}:{rng.choice(['00', '15', '30', '45'])}"
    ask = rng.choice(["Add {} on {} at {}.", "Put {} in my calendar on {} at {}."])
    event_id = f"ev_{number(rng, 4)}"
    return [
        user(ask.format(title, day, time)),
        call(
            "create_event", f"I will add {title} to the calendar.", title=title, day=day, time=time
        ),
        returned({"event_id": event_id, "status": "created"}),
        say(f"I added {title} on {day} at {time}. The event id is {event_id}."),
    ]


def order(rng: Random) -> list[Turn]:
    """The status of an order."""
    order_id = f"{rng.choice('ABCDEFGH')}{number(rng, 4)}"
    status, day = rng.choice(ORDER_STATES), rng.choice(DAYS)
    total = f"{number(rng, 2)}.{rng.randint(10, 99)}"
    ask = rng.choice(["Where is order {}?", "What is the status of order {}?", "Look up order {}."])
    return [
        user(ask.format(order_id)),
        call("lookup_order", f"I will look up order {order_id}.", order_id=order_id),
        returned(
            f'{{"order_id": "{order_id}", "status": "{status}", "day": "{day}", "total": {total}}}'
        ),
        say(f"Order {order_id} is {status}. The day is {day} and the total is {total}."),
    ]


def person(rng: Random) -> list[Turn]:
    """A user's record."""
    user_id, name = number(rng, 3), rng.choice(PEOPLE)
    email, team = f"{name.lower()}@{rng.choice(NOUNS)}.example", rng.choice(TAGS)
    ask = rng.choice(["Who is user {}?", "Show user {}.", "What is the email of user {}?"])
    return [
        user(ask.format(user_id)),
        call("get_user", f"I will get user {user_id}.", user_id=user_id),
        returned({"user_id": user_id, "name": name, "email": email, "team": team}),
        say(f"User {user_id} is {name} from the {team} team. The email is {email}."),
    ]


def timer(rng: Random) -> list[Turn]:
    """A timer with a label."""
    minutes, label = rng.randint(2, 59), rng.choice(TIMERS)
    ask = rng.choice(["Set a {} minute timer for {}.", "Start a {} minute timer for the {}."])
    return [
        user(ask.format(minutes, label)),
        call(
            "set_timer",
            f"I will start a timer for {minutes} minutes.",
            minutes=minutes,
            label=label,
        ),
        returned({"ok": True}),
        say(f"The {label} timer is set for {minutes} minutes."),
    ]


def tickets(rng: Random) -> list[Turn]:
    """Tickets by status and tags: the one call with a list in it."""
    status, tags = rng.choice(["open", "closed"]), rng.sample(TAGS, rng.randint(1, 2))
    rows = [
        {"id": number(rng, 3), "title": f"{rng.choice(VERBS)} the {rng.choice(NOUNS)}"}
        for _ in range(rng.randint(1, 3))
    ]
    ask = rng.choice(["List the {} tickets about {}.", "Which {} tickets have the tag {}?"])
    bullets = "\n".join(f"- {row['id']}: {row['title']}" for row in rows)
    return [
        user(ask.format(status, " and ".join(tags))),
        call("list_tickets", f"I will list the {status} tickets.", status=status, tags=tags),
        returned(rows),
        say(f"Here are the {status} tickets:\n{bullets}"),
    ]


def fact(rng: Random) -> list[Turn]:
    """A question that is answered without a tool."""
    question, answer = rng.choice(FACTS)
    return [user(question), say(answer, "This is a simple question. I do not need a tool.")]
