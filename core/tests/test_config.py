from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from attrs import field, frozen, validators
from platformdirs import user_config_path

from mlxfill import Config, ConfigError, load_config

pytestmark = pytest.mark.usefixtures("workplace")


def write(text: str, name: str = "mlxfill.toml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def complaints(source: Any = None, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(source, environ=environ)
    return str(caught.value).splitlines()


# --- which file ------------------------------------------------------------------


def test_without_a_file_everything_has_its_default() -> None:
    config = load_config()
    assert config == Config()
    assert config.file is None
    assert config.generation.max_tokens == 512
    assert config.trust.assert_ == ("constrain", "fill-strict")
    assert config.gate.enabled
    assert config.plugins.enabled is None


def test_the_first_place_that_has_a_config_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def model() -> str | None:
        return load_config(named).model

    named = None
    home = user_config_path("mlxfill", appauthor=False)
    write('model = "user"', str(home / "mlxfill.toml"))
    assert model() == "user"
    write('[tool.mlxfill]\nmodel = "project"', "pyproject.toml")
    assert model() == "project"
    write('model = "folder"')
    assert model() == "folder"
    monkeypatch.setenv("MLXFILL_CONFIG", str(write('model = "variable"', "v.toml")))
    assert model() == "variable"
    named = write('model = "argument"', "a.toml")
    assert model() == "argument"


def test_a_project_file_without_our_table_is_passed_over() -> None:
    write('[project]\nname = "x"', "pyproject.toml")
    assert load_config().file is None


def test_a_project_file_can_be_named() -> None:
    path = write("[tool.mlxfill.generation]\nsed = 1", "pyproject.toml")
    assert complaints(path) == [
        "pyproject.toml [tool.mlxfill]: generation.sed is an unknown key; did you mean 'seed'?"
    ]
    assert "no table [tool.mlxfill]" in complaints(write("", "pyproject.toml"))[0]
    assert complaints(write("[tool]\nmlxfill = 5", "pyproject.toml")) == [
        "pyproject.toml: tool.mlxfill must be a table, not 5"
    ]


@pytest.mark.parametrize("named", [True, False], ids=["argument", "variable"])
def test_a_named_file_must_exist(named: bool) -> None:
    source, environ = ("gone.toml", {}) if named else (None, {"MLXFILL_CONFIG": "gone.toml"})
    assert complaints(source, **environ) == [
        "config file 'gone.toml' does not exist; check --config and $MLXFILL_CONFIG"
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"model = ", "mlxfill.toml is not valid TOML: Invalid value"),
        (b"model = 'a'\nmodel = 'b'", "mlxfill.toml is not valid TOML: Cannot overwrite a value"),
        (b"model = '\xff'", "mlxfill.toml is not UTF-8 (at byte 9)"),
        (b"a = " + b"[" * 100_000, "mlxfill.toml is not valid TOML: nested too deeply"),
        (b"a = " + b"9" * 5000, "mlxfill.toml is not valid TOML: "),
        (b".".join([b"a"] * 5000) + b" = 1", "the config is nested too deeply"),
    ],
)
def test_a_file_that_is_no_toml_is_named(content: bytes, complaint: str) -> None:
    Path("mlxfill.toml").write_bytes(content)
    (line,) = complaints()
    assert line.startswith(complaint)


def test_a_folder_is_no_file() -> None:
    Path("folder").mkdir()
    assert complaints("folder") == ["folder cannot be read: Is a directory"]


def test_a_byte_order_mark_does_no_harm() -> None:
    Path("mlxfill.toml").write_bytes(b"\xef\xbb\xbfmodel = 'tiny'")
    assert load_config().model == "tiny"


# --- what it says ----------------------------------------------------------------


def test_all_of_a_file_is_read() -> None:
    write("""
        model = "tiny"
        draft = "tiny-draft"
        draft_kind = "two-model"
        num_draft_tokens = 0
        [plugins]
        enabled = ["fill-strict", "fill-echo"]
        [plugins.fill-echo]
        k = 8
        [generation]
        temperature = 1
        kv_bits = 4
        [trust]
        assert = []
        [gate]
        enabled = false
    """)
    config = load_config()
    assert (config.model, config.draft, config.draft_kind) == ("tiny", "tiny-draft", "two-model")
    assert config.num_draft_tokens == 0
    assert config.plugins.enabled == ("fill-strict", "fill-echo")
    assert config.plugins.tables == {"fill-echo": {"k": 8}}
    assert config.generation.temperature == 1.0
    assert config.generation.kv_bits == 4
    assert config.trust.assert_ == ()
    assert not config.gate.enabled
    assert config.file == "mlxfill.toml"


def test_a_bare_list_is_short_for_the_enabled_plugins() -> None:
    write('plugins = ["a", "b"]')
    assert load_config().plugins.enabled == ("a", "b")


def test_list_and_tables_of_one_name_get_the_remedy() -> None:
    write('plugins = ["fill-echo"]\n[plugins.fill-echo]\nk = 8')
    (line,) = complaints()
    assert line.startswith("mlxfill.toml is not valid TOML")
    assert line.endswith("; write 'enabled = [...]' under [plugins]")


def test_a_mapping_is_read_like_a_file_and_a_config_is_kept() -> None:
    config = load_config({"plugins": ["a"], "generation": {"seed": 3}})
    assert config.plugins.enabled == ("a",)
    assert config.generation.seed == 3
    assert load_config(config) is config
    assert complaints({"generation": {"seed": "3"}}) == [
        "config: generation.seed must be a whole number, not '3'"
    ]


def test_a_mapping_is_not_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXFILL_MODEL", "other")
    assert load_config({"model": "tiny"}).model == "tiny"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('modl = "x"', "modl is an unknown key; did you mean 'model'?"),
        ("model = 3", "model must be text, not 3"),
        ("num_draft_tokens = -1", "num_draft_tokens must be a whole number of at least 0, not -1"),
        ("num_draft_tokens = true", "num_draft_tokens must be a whole number, not True"),
        ("plugins = 'a'", "plugins must be a table, not 'a'"),
        ("plugins = ['a', 1]", "plugins.enabled must be a list of text, not ['a', 1]"),
        ("[plugins]\nenabled = 'a'", "plugins.enabled must be a list of text, not 'a'"),
        ("[plugins.enabled]\nk = 1", "plugins.enabled must be a list of text, not {'k': 1}"),
        ("[plugins]\nk = 1", "plugins.k is an unknown key; legal: enabled"),
        ("[serve]\nk = 1", "serve is an unknown key; a plugin's settings stand in [plugins.serve]"),
        ("serve = 1", "serve is an unknown key; legal: model, "),
        ("[generations]\nseed = 1", "generations is an unknown key; did you mean 'generation'?"),
        ("generation = 5", "generation must be a table, not 5"),
        ("[[generation]]\nseed = 1", "generation must be a table, not [{'seed': 1}]"),
        ("[generation]\nmax_tokns = 1", "generation.max_tokns is an unknown key; did you mean"),
        ('[generation]\n"a b" = 1', 'generation."a b" is an unknown key; legal: max_tokens, '),
        ('[generation]\n"a\\nb" = 1', 'generation."a\\nb" is an unknown key; legal: max_tokens, '),
        (
            "[generation]\nmax_tokens = -2",
            "generation.max_tokens must be a whole number of at least -1, not -2",
        ),
        ("[generation]\nmax_tokens = 5.0", "generation.max_tokens must be a whole number, not 5.0"),
        ("[generation]\ntemperature = -0.1", "generation.temperature must be 0 to 1000000, not"),
        ("[generation]\ntemperature = nan", "generation.temperature must be a number, not nan"),
        ("[generation]\ntemperature = inf", "generation.temperature must be a number, not inf"),
        ("[generation]\ntop_p = 1.1", "generation.top_p must be 0 to 1, not 1.1"),
        (
            "[generation]\ntop_k = -1",
            "generation.top_k must be a whole number of at least 0, not -1",
        ),
        ("[generation]\nmin_p = '0'", "generation.min_p must be a number, not '0'"),
        (
            "[generation]\nseed = -1",
            "generation.seed must be a whole number from 0 to 9223372036854775807, not -1",
        ),
        (
            "[generation]\nprefill_step_size = 0",
            "generation.prefill_step_size must be a whole number of at least 1",
        ),
        (
            "[generation]\nmax_kv_size = 0",
            "generation.max_kv_size must be a whole number of at least 1, not 0",
        ),
        ("[generation]\nkv_bits = 5", "generation.kv_bits must be 2, 3, 4, 6 or 8, not 5"),
        (
            "[generation]\nkv_group_size = 8",
            "generation.kv_group_size must be 32, 64 or 128, not 8",
        ),
        (
            "[generation]\nquantized_kv_start = -1",
            "generation.quantized_kv_start must be a whole number of at least 0",
        ),
        (
            "[generation]\nappend_chunk = -1",
            "generation.append_chunk must be a whole number of at least 0, not -1",
        ),
        (
            "[generation]\nmax_span = 1",
            "generation.max_span must be a whole number of at least 2, not 1",
        ),
        ("[trust]\nassert = 'a'", "trust.assert must be a list of text, not 'a'"),
        ("[trust]\nassert_ = []", "trust.assert_ is an unknown key; did you mean 'assert'?"),
        ("[gate]\nenabled = 1", "gate.enabled must be true or false, not 1"),
        ("file = 'x'", "file is an unknown key; legal: model, draft,"),
        ("sources = {}", "sources is an unknown key; legal: model, draft,"),
        ("[plugins.tables]\nk = 1\n[generation]\nx = 1", "generation.x is an unknown key"),
    ],
)
def test_a_mistake_gets_one_line_with_file_and_key(text: str, complaint: str) -> None:
    write(text)
    (line,) = complaints()
    assert line.startswith(f"mlxfill.toml: {complaint}")


def test_all_mistakes_are_reported_at_once() -> None:
    write("modl = 1\n[generation]\nseed = -1\ntop_p = 2\n[trust]\nassert = 1\n[gate]\non = true")
    assert [line.split()[1] for line in complaints()] == [
        "modl", "generation.top_p", "generation.seed", "trust.assert", "gate.on"
    ]  # fmt: skip


# --- the environment -------------------------------------------------------------


def test_variables_override_the_file() -> None:
    write('model = "tiny"\n[generation]\nseed = 1\ntop_k = 5')
    config = load_config(
        environ={
            "MLXFILL_MODEL": "7",
            "MLXFILL_GENERATION__SEED": "2",
            "MLXFILL_GENERATION__TEMPERATURE": "0.5",
            "MLXFILL_GATE__ENABLED": "false",
            "MLXFILL_TRUST__ASSERT": '["a"]',
            "MLXFILL_PLUGINS": "b, c",
            "MLXFILL_PLUGINS__FILL_ECHO__INDEX_MAX": "9",
            "MLXFILL_DRAFT": "",
        }
    )
    assert config.model == "7"
    assert config.generation.seed == 2
    assert config.generation.temperature == 0.5
    assert config.generation.top_k == 5
    assert not config.gate.enabled
    assert config.trust.assert_ == ("a",)
    assert config.plugins.enabled == ("b", "c")
    assert config.plugins.tables == {"fill-echo": {"index_max": "9"}}
    assert config.draft is None
    assert config.sources["generation.seed"] == "MLXFILL_GENERATION__SEED"
    assert config.sources["generation.top_k"] == "mlxfill.toml"
    assert config.sources["plugins.fill-echo.index_max"] == "MLXFILL_PLUGINS__FILL_ECHO__INDEX_MAX"
    assert "generation.min_p" not in config.sources


def test_an_empty_list_can_be_set_by_a_variable() -> None:
    assert load_config(environ={"MLXFILL_PLUGINS__ENABLED": "[]"}).plugins.enabled == ()


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("GENERATION__SEED", "x", "generation.seed must be a whole number, not 'x'"),
        ("GENERATION__SEED", "1.5", "generation.seed must be a whole number, not 1.5"),
        ("GENERATION__SED", "1", "generation.sed is an unknown key; did you mean 'seed'?"),
        ("GENERATIO__SEED", "1", "generatio is an unknown key; did you mean 'generation'?"),
        ("GATE__ENABLED", "yes", "gate.enabled must be true or false, not 'yes'"),
        ("NUM_DRAFT_TOKENS", "-1", "num_draft_tokens must be a whole number of at least 0, not -1"),
    ],
)
def test_a_mistake_in_a_variable_names_the_variable(
    variable: str, value: str, complaint: str
) -> None:
    assert complaints(**{f"MLXFILL_{variable}": value}) == [f"MLXFILL_{variable}: {complaint}"]


def test_other_variables_of_ours_are_no_keys() -> None:
    assert load_config(environ={"MLXFILL_TRACE": "t.jsonl", "MLXFILL_EXAMPLES": "3"}) == Config()


def test_a_variable_for_a_table_that_the_file_writes_as_a_value() -> None:
    write("generation = 5")
    assert complaints(MLXFILL_GENERATION__SEED="1") == [
        "mlxfill.toml: generation must be a table, not 5"
    ]


# --- settings of plugins ---------------------------------------------------------


@frozen
class Rule:
    name: str
    weight: float = 1.0


@frozen
class Settings:
    k: int = field(default=8, validator=validators.ge(1))
    match: Literal["first", "recent"] = "first"
    folder: Path | None = None
    words: list[str] = field(factory=list)
    assert_: bool = False
    rule: Rule = field(factory=lambda: Rule("none"))
    needed: str = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.needed == "k" and self.k > 10:
            raise ValueError("k is too large for what is needed")


def settings(table: dict[str, Any]) -> Any:
    return load_config({"plugins": {"echo": table}}).plugin_settings("echo", Settings)


def test_a_plugins_table_becomes_its_own_class() -> None:
    table = {
        "k": 3,
        "match": "recent",
        "folder": "x/y",
        "words": ["a"],
        "assert": True,
        "rule": {"name": "r"},
        "needed": "yes",
    }
    assert settings(table) == Settings(
        3, "recent", Path("x/y"), ["a"], assert_=True, rule=Rule("r"), needed="yes"
    )


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"kk": 1}, "echo.kk is an unknown key; did you mean 'k'?"),
        ({"k": 0}, "echo.k must be >= 1: 0"),
        ({"k": "1"}, "echo.k must be a whole number, not '1'"),
        ({"match": "last"}, "echo.match must be 'first' or 'recent', not 'last'"),
        ({"folder": 3}, "echo.folder must be text, not 3"),
        ({"words": "a"}, "echo.words must be a list of text, not 'a'"),
        ({"rule": {"weight": 1}}, "echo.rule.name is missing"),
        ({"rule": {"name": "a", "wait": 1}}, "echo.rule.wait is an unknown key; did you mean"),
        ({"rule": 1}, "echo.rule must be a table, not 1"),
        ({"needed": "k", "k": 11}, "echo is not legal: k is too large for what is needed"),
    ],
)
def test_a_mistake_in_a_plugins_table_names_the_key(table: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings({"needed": "yes", **table})
    assert str(caught.value).startswith(f"config: plugins.{complaint}")


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^config: plugins.echo.needed is missing$"):
        settings({})


def test_variables_reach_plugins_with_the_type_that_the_plugin_wants() -> None:
    table = {"NEEDED": "5", "K": "4", "WORDS": "a,b", "ASSERT": "true", "FOLDER": "x"}
    environ = {f"MLXFILL_PLUGINS__ECHO__{key}": value for key, value in table.items()}
    found = load_config(environ=environ).plugin_settings("echo", Settings)
    assert found == Settings(4, "first", Path("x"), ["a", "b"], assert_=True, needed="5")


def test_a_plugin_without_settings_takes_none() -> None:
    assert load_config({}).plugin_settings("echo", None) is None
    with pytest.raises(ConfigError, match=r"^config: plugins.echo: this plugin takes no settings$"):
        load_config({"plugins": {"echo": {"k": 1}}}).plugin_settings("echo", None)


@frozen
class Loose:
    ratio: float | None = None
    size: int | str = 1
    names: str | list[str] = "a"
    limits: dict[str, int] | None = None


@pytest.mark.parametrize(
    ("key", "value", "taken"),
    [
        ("ratio", 1, 1.0),
        ("ratio", None, None),
        ("size", "all", "all"),
        ("names", "ab", "ab"),
        ("names", ["ab"], ["ab"]),
        ("limits", {"a": 1}, {"a": 1}),
    ],
)
def test_a_setting_may_have_several_types(key: str, value: object, taken: object) -> None:
    config = load_config({"plugins": {"loose": {key: value}}})
    assert getattr(config.plugin_settings("loose", Loose), key) == taken


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("ratio", True, "a number"),
        ("ratio", float("nan"), "a number"),
        ("size", [1], "a whole number or text"),
        ("names", 1, "text or a list of text"),
        ("limits", 5, "a table"),
    ],
)
def test_a_value_of_none_of_the_types_is_a_mistake(key: str, value: object, wanted: str) -> None:
    config = load_config({"plugins": {"loose": {key: value}}})
    with pytest.raises(ConfigError, match=f"^config: plugins.loose.{key} must be {wanted}, not "):
        config.plugin_settings("loose", Loose)


def test_the_wrong_values_of_a_table_are_named_and_not_the_table() -> None:
    limits = {"a": "b", "c": 1, "d e": 2.5}
    config = load_config({"plugins": {"loose": {"limits": limits}}})
    with pytest.raises(ConfigError) as caught:
        config.plugin_settings("loose", Loose)
    assert str(caught.value).splitlines() == [
        "config: plugins.loose.limits.a must be a whole number, not 'b'",
        'config: plugins.loose.limits."d e" must be a whole number, not 2.5',
    ]


def test_the_variable_that_holds_a_wrong_value_in_a_table_is_named() -> None:
    config = load_config(environ={"MLXFILL_PLUGINS__LOOSE__LIMITS": "{a = 'b'}"})
    with pytest.raises(ConfigError) as caught:
        config.plugin_settings("loose", Loose)
    told = "MLXFILL_PLUGINS__LOOSE__LIMITS: plugins.loose.limits.a must be a whole number, not 'b'"
    assert str(caught.value) == told
