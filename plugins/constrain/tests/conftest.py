"""Engines that hold replies, on random models of every cache kind, and schemas to hold them to."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from attrs import define
from hypothesis import settings
from mlx_lm.tokenizer_utils import load

import mlxfill_model_tiny
from mlxfill import Engine, load_config
from mlxfill.plugins import PluginManager
from mlxfill_constrain import plugin
from mlxfill_testing import Guest, shared_model

TINY = Path(mlxfill_model_tiny.__file__).parent / "models" / "target"
IDS = 1024
"""Size of the tiny model's vocabulary, with which the random models are made."""
PROMPT = "Say it. "

settings.register_profile("constrain", max_examples=40, derandomize=True, deadline=None)


@cache
def tiny_model_tokenizer() -> Any:
    """That of the tiny model: byte-level, with reasoning."""
    return load(TINY)


@define(kw_only=True)
class Held:
    """Makes engines around random models in which ``constrain`` is on."""

    prompt_ids: list[int]

    def engine(
        self,
        *guests: Guest,
        name: str = "llama",
        trusted: tuple[str, ...] = ("constrain",),
        last: bool = False,
        **table: Any,
    ) -> Engine:
        """One with these guests.

        :param name: architecture.
        :param last: whether ``constrain`` comes after the guests.
        :param table: ``[plugins.constrain]``.
        """
        config = load_config(
            {
                "gate": {"enabled": False},
                "trust": {"assert": list(trusted)},
                "plugins": {"constrain": table},
            }
        )
        theirs = [(guest.name, guest) for guest in guests]
        ours: list[tuple[str, object]] = [("constrain", plugin)]
        manager = PluginManager([*theirs, *ours] if last else [*ours, *theirs], config=config)
        kind = "scripted" if any(guest.drafter for guest in guests) else None
        model = shared_model(name, vocab_size=IDS)
        tokenizer = tiny_model_tokenizer()
        return Engine(model, tokenizer, plugins=manager, config=config, draft_kind=kind)

    def write(self, *guests: Guest, schema: Any, name: str = "llama", **more: Any) -> Any:
        """The result of one request; options of the request, and ``forced``, in ``more``."""
        own = {k: more.pop(k) for k in ("forced", "whitespace", "trusted", "last") if k in more}
        options = {"prompt": self.prompt_ids, "max_tokens": 120, "seed": 5, **more}
        with self.engine(*guests, name=name, **own) as engine:
            result = engine.generate(schema=schema, **options)
        assert result.faults == []
        return result


@pytest.fixture(scope="session")
def held() -> Held:
    """See ``Held``."""
    return Held(prompt_ids=tiny_model_tokenizer().encode(PROMPT))


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """See ``tiny_model_tokenizer``."""
    return tiny_model_tokenizer()
