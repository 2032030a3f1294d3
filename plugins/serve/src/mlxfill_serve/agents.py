"""Agents in common use: how each is told of a server, and how it is installed.

In variables and arguments ``{url}``, ``{key}`` and ``{model}`` stand for those of the server.
Sources are the agents' own pages on configuration.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen
class Agent:
    """``program`` is its command, ``install`` the one that installs it."""

    program: str
    install: str
    variables: Mapping[str, str] = field(factory=dict)
    arguments: tuple[str, ...] = ()

    def environment(self, **values: str) -> dict[str, str]:
        """Its variables for a server."""
        return {name: _filled(text, values) for name, text in self.variables.items()}

    def command(self, **values: str) -> list[str]:
        """Its command for a server, without what the user adds."""
        return [self.program, *(_filled(text, values) for text in self.arguments)]


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


OPENCODE = {
    "model": "mlxfill/{model}",
    "provider": {
        "mlxfill": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "mlxfill",
            "options": {"baseURL": "{url}/v1", "apiKey": "{key}"},
            "models": {"{model}": {"name": "{model}"}},
        }
    },
}
PROVIDER = "model_providers.mlxfill"
AGENTS: dict[str, Agent] = {
    "aider": Agent(
        "aider",
        "python -m pip install aider-chat",
        {"OPENAI_API_BASE": "{url}/v1", "OPENAI_API_KEY": "{key}"},
        ("--model", "openai/{model}"),
    ),
    "claude": Agent(
        "claude",
        "npm install -g @anthropic-ai/claude-code",
        {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_AUTH_TOKEN": "{key}"},
    ),
    "codex": Agent(
        "codex",
        "npm install -g @openai/codex",
        {"MLXFILL_KEY": "{key}"},
        (
            *("-c", 'model="{model}"'),
            *("-c", 'model_provider="mlxfill"'),
            *("-c", f'{PROVIDER}.name="mlxfill"'),
            *("-c", f'{PROVIDER}.base_url="{{url}}/v1"'),
            *("-c", f'{PROVIDER}.env_key="MLXFILL_KEY"'),
            *("-c", f'{PROVIDER}.wire_api="responses"'),
        ),
    ),
    "goose": Agent(
        "goose",
        "brew install block-goose-cli",
        {
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": "{model}",
            "OPENAI_HOST": "{url}",
            "OPENAI_API_KEY": "{key}",
        },
    ),
    "opencode": Agent(
        "opencode",
        "npm install -g opencode-ai",
        {"OPENCODE_CONFIG_CONTENT": json.dumps(OPENCODE)},
    ),
    "qwen": Agent(
        "qwen",
        "npm install -g @qwen-code/qwen-code",
        {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "{key}", "OPENAI_MODEL": "{model}"},
    ),
}
