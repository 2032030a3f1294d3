"""The model, as Ollama's clients ask for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlxfill import Engine
    from mlxfill_serve.models import Models


def tags(models: Models) -> list[dict[str, Any]]:
    """``GET /api/tags``: each name of the model."""
    born = datetime.fromtimestamp(models.created, UTC).isoformat()
    named = [each["id"] for each in models.listed()["data"]]
    return [
        {"name": name, "model": name, "modified_at": born, "size": 0, "digest": "", "details": {}}
        for name in named
    ]


def shown(engine: Engine) -> dict[str, Any]:
    """``POST /api/show``: what a client may rely on."""
    template = getattr(engine.tokenizer, "chat_template", None) or ""
    known = {"tools": "tools" in template, "thinking": engine.tokenizer.has_thinking}
    able = ["completion", *(name for name, is_so in known.items() if is_so)]
    context = {} if engine.context is None else {"general.context_length": engine.context}
    return {
        "template": template if isinstance(template, str) else "",
        "capabilities": able,
        "details": {"format": "mlx"},
        "model_info": context,
    }
