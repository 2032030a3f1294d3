"""The entry point ``constrain``: holds replies to the schema of their request."""

from __future__ import annotations

from mlxfill import Constraint, InputError, Request, hookimpl
from mlxfill_constrain.settings import ConstrainSettings

MLXFILL_API = 2


@hookimpl
def mlxfill_settings() -> type[ConstrainSettings]:
    """The table ``[plugins.constrain]``."""
    return ConstrainSettings


@hookimpl(tryfirst=True)  # what the grammar forces is certain
def mlxfill_constraint(request: Request, settings: ConstrainSettings | None) -> Constraint | None:
    """The grammar of ``request.schema``, for this model's tokens."""
    from mlxfill_constrain.constraint import GrammarConstraint
    from mlxfill_constrain.reasoning import opened_block
    from mlxfill_constrain.vocabulary import Vocabulary
    from mlxfill_constrain.walk import Walk

    schema, settings = request.schema, settings or ConstrainSettings()
    if schema is None:
        return None
    if len(schema.text) > settings.max_size:
        raise InputError(
            f"schema has {len(schema.text)} characters, more than the {settings.max_size} that"
            " max_size of [plugins.constrain] allows"
        )
    vocabulary = Vocabulary.of(request.tokenizer, request.eos_ids)
    opens = not opened_block(request)
    walk = Walk(vocabulary.matcher(schema, settings.whitespace, opens=opens), vocabulary.spelled)
    return GrammarConstraint(walk, vocabulary, request, forced=settings.forced)
