"""An agent with tools, on the ``openai`` package and a server of mlxfill.

    pip install openai mlxfill-serve mlxfill-model-tiny
    python examples/openai_agent.py                     # starts a server with the model tiny
    python examples/openai_agent.py --url http://127.0.0.1:8080/v1 --task "..."

The agent reads and edits files that live in this program.  After every request it prints what fills
and drafts brought, as the server tells it in ``usage``.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

try:
    from openai import APIConnectionError, APIStatusError, OpenAI
except ImportError:
    sys.exit("the package openai is missing: pip install openai")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TASK = "Please rename the function send_token to read_order in web/copy_model.py."
FILES = {
    "web/copy_model.py": "EVENT_COUNT = 648\n\ndef send_token(y, items=61):\n"
    "    if y > items:\n        return items\n    return y",
}
TURNS = 8


def tool(name: str, description: str, *arguments: str) -> dict[str, Any]:
    """A function whose arguments are texts, as OpenAI's API describes it."""
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string"} for argument in arguments},
        "required": list(arguments),
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = [
    tool("edit_file", "Replace text in a file.", "path", "old", "new"),
    tool("read_file", "Read a file.", "path"),
]


def read_file(path: str) -> str:
    """What a file holds."""
    return FILES.get(path, f"error: there is no file {path}")


def edit_file(path: str, old: str, new: str) -> str:
    """Exchange a text, which must stand in the file once."""
    if FILES.get(path, "").count(old) != 1:
        return f"error: {old!r} does not stand once in {path}"
    FILES[path] = FILES[path].replace(old, new)
    return "ok"


def call(name: str, arguments: str) -> str:
    """Do what the model asks for; whatever is wrong with it, the model is told."""
    known: dict[str, Callable[..., str]] = {"read_file": read_file, "edit_file": edit_file}
    try:
        return known[name](**json.loads(arguments))
    except (KeyError, TypeError, ValueError) as error:
        return f"error: {type(error).__name__}: {error}"


def work(client: OpenAI, model: str, task: str) -> None:
    """Let the model call tools until it answers."""
    messages: list[Any] = [
        {"role": "system", "content": "You are a coding assistant."},
        {"role": "user", "content": task},
    ]
    tools: Any = TOOLS
    for _ in range(TURNS):
        answer = client.chat.completions.create(
            model=model, messages=messages, tools=tools, max_tokens=400
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        report(answer.usage)
        if not message.tool_calls:
            print(message.content)
            return
        for asked in message.tool_calls:
            if asked.type == "function":
                result = call(asked.function.name, asked.function.arguments)
                print(f"  {asked.function.name}({asked.function.arguments}) -> {result[:60]!r}")
                messages.append({"role": "tool", "tool_call_id": asked.id, "content": result})
    print(f"gave up after {TURNS} requests")


def report(usage: Any) -> None:  # noqa: ANN401 - with fields that the package does not know
    """Print what a request cost, and what it did not."""
    told = usage.model_dump()
    fill, drafts = told["fill"], told["speculation"]
    print(
        f"{told['completion_tokens']} tokens in {told['target_forwards']} forwards"
        f" ({told['tokens_per_forward']} a forward, {told['tokens_per_second']} tokens/s);"
        f" filled {fill['injected']}, drafted {drafts['drafted']}, accepted {drafts['accepted']};"
        f" {told['prompt_tokens_details']['cached_tokens']} of {told['prompt_tokens']} prompt"
        " tokens were known"
    )


@contextmanager
def server(url: str | None) -> Iterator[str]:
    """The URL of the API: the one given, or that of a server in this program."""
    if url is not None:
        yield url
        return
    import mlxfill
    import mlxfill_serve

    config = {"cache": {"every_request": True}}
    with mlxfill_serve.serving(lambda: mlxfill.load("tiny", config=config)) as started:
        yield f"{started.url}/v1"


def main() -> None:
    """Do the task of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--url", help="of a server that runs, with /v1; else one is started")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default=TASK)
    options = parser.parse_args()
    with server(options.url) as url, OpenAI(base_url=url, api_key="none") as client:
        try:
            work(client, options.model, options.task)
        except APIConnectionError:
            sys.exit(f"nobody answers at {url}: start one with mlxfill serve, or leave --url out")
        except APIStatusError as error:
            sys.exit(f"{url}: {error.message}")
    for path, text in FILES.items():
        print(f"--- {path}\n{text}")


if __name__ == "__main__":
    main()
