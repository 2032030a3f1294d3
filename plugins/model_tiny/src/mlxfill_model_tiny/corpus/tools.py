"""The tools of the corpus, as JSON schemas in OpenAI's format."""

from __future__ import annotations

from typing import Any

_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_NUMBER = {"type": "number"}


def _one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def _tool(
    name: str, description: str, required: str, **properties: dict[str, Any]
) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required.split()}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


_ALL = (
    _tool("read_file", "Read a file.", "path", path=_STRING),
    _tool("write_file", "Write a new file.", "path content", path=_STRING, content=_STRING),
    _tool(
        "edit_file",
        "Replace text in a file.",
        "path old new",
        path=_STRING,
        old=_STRING,
        new=_STRING,
    ),
    _tool("list_dir", "List a directory.", "path", path=_STRING),
    _tool(
        "search_code",
        "Search the code.",
        "query",
        query=_STRING,
        limit={"type": "integer", "default": 20},
    ),
    _tool("run_command", "Run a shell command.", "command", command=_STRING),
    _tool(
        "get_weather",
        "Get the weather in a city.",
        "city unit",
        city=_STRING,
        unit=_one_of("celsius", "fahrenheit"),
    ),
    _tool("get_time", "Get the local time in a city.", "city", city=_STRING),
    _tool(
        "convert_currency",
        "Convert an amount of money.",
        "amount source target",
        amount=_NUMBER,
        source=_STRING,
        target=_STRING,
    ),
    _tool("calculate", "Evaluate an expression.", "expression", expression=_STRING),
    _tool("send_message", "Send a message to a person.", "to text", to=_STRING, text=_STRING),
    _tool(
        "create_event",
        "Add an event to the calendar.",
        "title day time",
        title=_STRING,
        day=_STRING,
        time=_STRING,
    ),
    _tool("lookup_order", "Look up an order.", "order_id", order_id=_STRING),
    _tool("get_user", "Get a user record.", "user_id", user_id=_INTEGER),
    _tool("set_timer", "Start a timer.", "minutes", minutes=_INTEGER, label=_STRING),
    _tool(
        "list_tickets",
        "List tickets.",
        "status tags",
        status=_one_of("open", "closed"),
        tags={"type": "array", "items": _STRING},
    ),
)

TOOLS: dict[str, dict[str, Any]] = {tool["function"]["name"]: tool for tool in _ALL}
"""Name to schema, in the order in which the corpus draws them."""
