"""The chat template, rendered without a tokenizer.

Every assistant turn carries a think block, empty where it did not think.  So a
rendered history always extends the prompts that produced it, byte for byte.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2

    from mlxfill_model_tiny.corpus.transcript import Transcript

TEMPLATE_FILE = Path(__file__).parent / "chat_template.jinja"


def rendered(transcript: Transcript) -> str:
    """The conversation's text as the model sees it, turn markers included."""
    return _template().render(messages=transcript.messages, tools=transcript.tools)


@functools.cache
def _template() -> jinja2.Template:
    import jinja2

    # The same settings as transformers', and text for a model, not for a browser.
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)  # noqa: S701
    environment.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
    return environment.from_string(TEMPLATE_FILE.read_text(encoding="utf-8"))
