"""How arms are named and opened."""

from __future__ import annotations

import pytest

import mlxfill
from mlxfill_bench import PLAIN, open_arms
from mlxfill_bench.arms import named_arms, needed

CONFIG = {"gate": {"enabled": False}}


def test_arms_are_plugins_joined_by_plus_and_plain_comes_first() -> None:
    echo, ngram = "fill-echo", "spec-ngram"
    assert named_arms("echo,ngram, echo + ngram") == [PLAIN, echo, ngram, f"{echo}+{ngram}"]
    assert named_arms("fill-echo,plain") == [PLAIN, echo]


def test_the_last_words_of_a_plugins_name_will_do() -> None:
    assert named_arms("ngram,echo+ngram,qwen-mtp") == [
        PLAIN,
        "spec-ngram",
        "fill-echo+spec-ngram",
        "spec-qwen-mtp",
    ]
    assert named_arms("draft=ngram,ngram + draft=some/folder") == [
        PLAIN,
        "draft=ngram",
        "spec-ngram+draft=some/folder",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ngram,spec-ngram", "spec-ngram is named twice"),
        ("draft=", "an arm is plugins joined by +, not 'draft='"),
        ("draft=a+draft=b", "an arm has one drafter"),
        ("", "an arm is plugins joined by"),
        ("echo,", "an arm is plugins joined by"),
        ("echo++serve", "not 'fill-echo++serve'"),
        ("echo+plain", "not 'fill-echo+plain'"),
        ("echo,serve,echo", "fill-echo is named twice"),
        ("plain", "name plugins to hold against plain"),
    ],
)
def test_wrong_arms_are_named(text: str, complaint: str) -> None:
    with pytest.raises(mlxfill.InputError) as error:
        named_arms(text)
    assert complaint in str(error.value)
    assert str(error.value).startswith(f"--arms {text}")


def test_arms_share_a_model_and_differ_in_their_plugins() -> None:
    config = mlxfill.load_config(CONFIG)
    with open_arms("tiny", ["spec-ngram", "spec-ngram+fill-echo"], config) as arms:
        names = {name: list(engine.plugins.names) for name, engine in arms.items()}
        assert len({id(engine.model) for engine in arms.values()}) == 1
    assert names == {
        PLAIN: [],
        "spec-ngram": ["spec-ngram"],
        "spec-ngram+fill-echo": ["spec-ngram", "fill-echo"],
    }


def test_without_names_each_source_that_is_on_and_all_of_them() -> None:
    on = {"enabled": ["bench", "fill-echo", "model-tiny", "spec-ngram"]}
    with open_arms("tiny", None, mlxfill.load_config({**CONFIG, "plugins": on})) as arms:
        assert list(arms) == [PLAIN, "fill-echo", "spec-ngram", "fill-echo+spec-ngram"]
    on = {"enabled": ["spec-ngram", "model-tiny"]}
    with open_arms("tiny", None, mlxfill.load_config({**CONFIG, "plugins": on})) as arms:
        assert list(arms) == [PLAIN, "spec-ngram"]


def test_without_names_and_without_sources_there_is_nothing_to_measure() -> None:
    config = mlxfill.load_config({"plugins": {"enabled": ["model-tiny"]}})
    with (
        pytest.raises(
            mlxfill.InputError, match=r"is on: switch on one of fill-echo, .*spec-ngram.*, or"
        ),
        open_arms("tiny", None, config),
    ):
        pass


def test_an_arm_may_have_a_drafter() -> None:
    config = mlxfill.load_config(CONFIG)
    names = ["draft=tiny-draft", "spec-ngram+draft=tiny-mtp"]
    with open_arms("tiny", names, config) as arms:
        drafters = [engine.drafter and engine.drafter.plugin for engine in arms.values()]
        assert drafters == [None, "spec-two-model", "spec-qwen-mtp"]
        used = {name: needed(engine, name) for name, engine in arms.items()}
    assert used == {
        PLAIN: (),
        "draft=tiny-draft": ("spec-two-model",),
        "spec-ngram+draft=tiny-mtp": ("spec-ngram", "spec-qwen-mtp"),
    }


def test_the_drafter_of_the_config_is_an_arm_where_none_are_named() -> None:
    on = {"enabled": ["model-tiny", "spec-ngram", "spec-two-model"]}
    config = mlxfill.load_config({**CONFIG, "plugins": on, "draft": "tiny-draft"})
    with open_arms("tiny", None, config) as arms:
        assert list(arms) == [
            PLAIN,
            "spec-ngram",
            "draft=tiny-draft",
            "spec-ngram+draft=tiny-draft",
        ]


def test_a_drafters_plugin_alone_needs_a_drafter() -> None:
    with (
        pytest.raises(mlxfill.InputError, match="spec-two-model has nothing to draft with"),
        open_arms("tiny", ["spec-two-model"], mlxfill.load_config(CONFIG)),
    ):
        pass
    config = mlxfill.load_config({**CONFIG, "draft": "tiny-draft"})
    with open_arms("tiny", ["spec-two-model"], config) as arms:
        assert arms["spec-two-model"].drafter is not None


def test_a_drafter_of_the_config_is_in_no_other_arm() -> None:
    config = mlxfill.load_config({**CONFIG, "draft": "none", "draft_kind": "two-model"})
    with open_arms("tiny", ["spec-ngram"], config) as arms:
        assert all(engine.faults == [] for engine in arms.values())
