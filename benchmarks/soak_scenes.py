"""Episodes of a soak: an engine is opened in some way, used for a while and closed."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mlxfill import ConfigError, Engine, load, load_config
from mlxfill_testing import ARCHITECTURES, VOCAB, shared_model, tiny_tokenizer
from soak_acts import Scene, Tally, play
from soak_draws import Asked, for_random, for_tiny
from soak_judge import ADAPTERS, ALPHABET, TINY, MismatchError, World, exact
from soak_server import served

if TYPE_CHECKING:
    from random import Random

SOURCES = ("fill-strict", "fill-echo", "spec-ngram", "fill-escaped")
DRAFTERS: dict[str, dict[str, Any]] = {
    "spec-ngram": {"draft_kind": "ngram"},
    "spec-two-model": {"draft": "tiny-draft"},
    "spec-qwen-mtp": {"draft": "tiny-mtp"},
    "spec-dflash": {"draft": "tiny-dflash"},
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def drawn_plugins(draw: Random) -> tuple[list[str], dict[str, Any]]:
    """Some plugins in some order, and how to load a drafter, if any."""
    plugins = [name for name in SOURCES if find_spec(_module(name)) and draw.random() < 0.5]  # noqa: PLR2004
    drafter = draw.choice([None, None, *DRAFTERS])
    if drafter is not None and drafter not in plugins:
        plugins.append(drafter)
    plugins.append("constrain")
    draw.shuffle(plugins)
    return plugins, DRAFTERS[drafter] if drafter else {}


def drawn_config(draw: Random) -> dict[str, Any]:
    """A config of which every value is legal; the gate is off in most."""
    return {
        "gate": {"enabled": draw.random() < 0.25},  # noqa: PLR2004
        "cache": {
            "max_entries": draw.choice([0, 1, 4, 40]),
            "max_mb": draw.choice([1, 4096]),
            "every_request": draw.random() < 0.5,  # noqa: PLR2004
        },
        "fill-strict": {"policy": draw.choice(["assert", "verify"])},
        "fill-echo": {"k": draw.choice([2, 4, 8]), "assert": draw.random() < 0.2},  # noqa: PLR2004
        "trust": draw.choice(
            [{}, {"assert": []}, {"assert": ["fill-strict", "fill-echo", "constrain"]}]
        ),
    }


def tiny(world: World, draw: Random, tally: Tally) -> None:
    """The trained model."""
    plugins, drafter = drawn_plugins(draw)
    config = _tables(drawn_config(draw), plugins)
    with_adapters = draw.random() < 0.25 and "draft" not in drafter  # noqa: PLR2004
    adapters = dict(world.adapters) if with_adapters else None
    with load(TINY, plugins=plugins, config=config, adapters=adapters, **drafter) as engine:
        vocabulary = engine.target.vocab_size

        def request() -> Asked:
            return for_tiny(draw, world.asks, vocabulary, list(ADAPTERS) if adapters else [])

        play(Scene(world, TINY, engine, draw, request, tally, loose=True), draw.randint(2, 6))


def random_weights(world: World, draw: Random, tally: Tally) -> None:
    """A random model of any architecture."""
    model = draw.choice(list(ARCHITECTURES))
    plugins, drafter = drawn_plugins(draw)
    if "draft" in drafter:
        plugins = [p for p in plugins if p != "spec-qwen-mtp"]
        plugins = list(dict.fromkeys([*plugins, "spec-two-model"]))
        drafter = {"draft": str(world.drafts[draw.choice(list(world.drafts))])}
    config = _tables(drawn_config(draw), plugins)
    made = Engine(
        shared_model(model),
        tiny_tokenizer(),
        plugins=plugins,
        config=config,
        context=4096,
        **drafter,
    )
    with made as engine:

        def request() -> Asked:
            return for_random(draw, VOCAB, exact=exact(model))

        play(Scene(world, model, engine, draw, request, tally, loose=True), draw.randint(2, 6))


def denoised(world: World, draw: Random, tally: Tally) -> None:
    """Another way to generate: the toy model whose answers are runs of the alphabet."""
    plugins = ["diffusion", *(p for p in ("spec-ngram", "fill-echo") if draw.random() < 0.5)]  # noqa: PLR2004
    with load(ALPHABET, plugins=plugins, config={}) as engine:

        def request() -> Asked:
            question = "".join(draw.sample(LETTERS, 2))
            options: dict[str, Any] = {"max_tokens": draw.choice([1, 5, 30])}
            if draw.random() < 0.3:  # noqa: PLR2004
                options |= {"temperature": 0.8, "seed": draw.randrange(1 << 30)}
            if draw.random() < 0.3:  # noqa: PLR2004
                options["stop"] = draw.choice(LETTERS)
            return Asked([{"role": "user", "content": question}], None, options)

        scene = Scene(world, ALPHABET, engine, draw, request, tally)
        play(scene, draw.randint(2, 6), ("one reply", "left early", "batch", "mistaken"))


def configured(world: World, draw: Random, tally: Tally) -> None:
    """A config file, legal or not, read again after each change."""
    path = world.folder / "mlxfill.toml"
    plugins, drafter = drawn_plugins(draw)
    for _ in range(draw.randint(1, 3)):
        tables = _tables(drawn_config(draw), plugins)
        wrong = draw.choice([None, None, ("gate", "enabld"), ("cache", "max_mb"), ("typo", "x")])
        if wrong is not None:
            tables.setdefault(wrong[0], {})[wrong[1]] = "many"
        text = [f"plugins.enabled = {json.dumps(plugins)}", 'model = "tiny"']
        text += [f"{name} = {json.dumps(value)}" for name, value in drafter.items()]
        plugin_tables = tables.pop("plugins", {})
        text += [
            f"{table}.{key} = {json.dumps(value)}"
            for table, keys in {
                **tables,
                **{f"plugins.{name}": keys for name, keys in plugin_tables.items()},
            }.items()
            for key, value in keys.items()
        ]
        path.write_text("\n".join(text), "utf-8")
        try:
            config = load_config(path, environ={})
        except ConfigError:
            if wrong is None:
                raise
            continue
        if wrong is not None:
            raise MismatchError(f"{wrong} was taken:\n{path.read_text('utf-8')}")
        with load(TINY, config=config) as engine:
            vocabulary = engine.target.vocab_size

            def request(size: int = vocabulary) -> Asked:
                return for_tiny(draw, world.asks, size, [])

            play(Scene(world, TINY, engine, draw, request, tally, loose=True), 1)


def over_http(world: World, draw: Random, tally: Tally) -> None:
    """The server in this process."""
    plugins, drafter = drawn_plugins(draw)
    tables = {**drawn_config(draw), "fill-strict": {"policy": "verify"}}
    tables["trust"] = {}
    config = _tables(tables, plugins)

    def opened() -> Engine:
        return load(TINY, plugins=plugins, config=config, **drafter)

    served(world, draw, tally, opened)


def _tables(drawn: dict[str, Any], plugins: list[str]) -> dict[str, Any]:
    """The tables of the plugins that are on stand under ``plugins``."""
    settings = {name: drawn[name] for name in ("fill-strict", "fill-echo") if name in plugins}
    core = {name: drawn[name] for name in ("gate", "cache", "trust")}
    trusted = core["trust"].get("assert")
    if trusted is not None:
        core["trust"] = {"assert": [name for name in trusted if name in plugins]}
    return {**core, "plugins": settings} if settings else core


def _module(plugin: str) -> str:
    return f"mlxfill_{plugin.replace('-', '_')}"


SCENES: dict[str, tuple[Callable[[World, Random, Tally], None], int]] = {
    "tiny": (tiny, 8),
    "random weights": (random_weights, 6),
    "over http": (over_http, 3),
    "configured": (configured, 2),
    **({"denoised": (denoised, 1)} if find_spec("mlxfill_diffusion") else {}),
}


def episode(world: World, draw: Random, tally: Tally) -> None:
    """One scene of some kind.  What it raises says which."""
    names = list(SCENES)
    (name,) = draw.choices(names, [SCENES[n][1] for n in names])
    tally.acts[name] += 1
    try:
        SCENES[name][0](world, draw, tally)
    except Exception as error:
        error.add_note(f"in the scene {name!r}")
        raise
