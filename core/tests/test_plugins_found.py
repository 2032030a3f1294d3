"""Finding, importing and refusing installed plugins."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlxfill import ConfigError, InputError, PluginError, load_config
from mlxfill.plugins import PluginManager, scan
from mlxfill.plugins.advice import missing
from mlxfill_testing.installed import HEADER

if TYPE_CHECKING:
    from pathlib import Path

    from mlxfill_testing.installed import FakeSite

pytestmark = pytest.mark.usefixtures("workplace")

SETTINGS = """
from attrs import frozen

@frozen
class Settings:
    k: int = 8

@mlxfill.hookimpl
def mlxfill_settings():
    return Settings
"""
MODEL = """
from pathlib import Path

@mlxfill.hookimpl
def mlxfill_resolve_model(name):
    return Path({folder!r}) if name == {model!r} else None
"""
BROKEN = {
    "import": ("import mlxfill_gone_module", "ModuleNotFoundError: No module named"),
    "syntax": ("def broken(:", "SyntaxError: invalid syntax (mlxfill_bad.py, line 1)"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "custom": ("class Odd(BaseException): pass\nraise Odd('x\\ny')", "Odd: x y"),
    "speechless": (
        "class Odd(Exception):\n    def __str__(self): raise self\nraise Odd",
        "cannot be imported: Odd; try",
    ),
    "no api": ("import mlxfill", "states no MLXFILL_API, this mlxfill has API 2"),
    "older api": ("MLXFILL_API = 0", "is written for API 0, this mlxfill has API 2"),
    "misspelt hook": (
        HEADER + "@mlxfill.hookimpl\ndef mlxfill_proposal_source(request): pass",
        "has an unknown hook 'mlxfill_proposal_source'; did you mean 'mlxfill_proposal_sources'?",
    ),
    "misspelt argument": (
        HEADER + "@mlxfill.hookimpl\ndef mlxfill_observe(evnt): pass",
        "Argument(s) {'evnt'} are declared in the hookimpl but can not be found in the hookspec",
    ),
    "no mark": (
        HEADER + "def mlxfill_observe(event): pass",
        "registers no hook 'mlxfill_observe': decorate that function with @mlxfill.hookimpl",
    ),
    "wrapper": (
        HEADER + "@mlxfill.hookimpl(wrapper=True)\ndef mlxfill_observe(event):\n    yield",
        "wraps the hook 'mlxfill_observe'; wrappers are not supported",
    ),
    "settings hook": (
        HEADER + "@mlxfill.hookimpl\ndef mlxfill_settings(): raise ValueError('no')",
        "fails in mlxfill_settings: ValueError: no",
    ),
    "settings class": (
        HEADER + "@mlxfill.hookimpl\ndef mlxfill_settings(): return int",
        "fails in mlxfill_settings: TypeError: returned <class 'int'>, not an attrs class",
    ),
    "settings types": (
        (
            f"from __future__ import annotations\n{HEADER}from attrs import frozen\n"
            "@frozen\nclass Settings:\n    k: Unknown = 1\n"
            "@mlxfill.hookimpl\ndef mlxfill_settings(): return Settings"
        ),
        "has a broken settings class: NameError: name 'Unknown' is not defined",
    ),
}
each_broken = pytest.mark.parametrize(("source", "cause"), BROKEN.values(), ids=list(BROKEN))


def refusal(config: dict[str, Any] | None = None, names: list[str] | None = None) -> list[str]:
    with pytest.raises((PluginError, ConfigError)) as caught:
        PluginManager.load(load_config(config or {}), names)
    return str(caught.value).splitlines()


def enable(*names: str) -> Any:
    return load_config({"plugins": list(names)})


# --- order and choice ------------------------------------------------------------


def test_without_a_list_all_that_is_installed_is_on_by_name(site: FakeSite) -> None:
    for name in ("bb", "aa", "cc"):
        site.add(name)
    names = PluginManager.load(load_config({})).names
    assert [name for name in names if name in {"aa", "bb", "cc"}] == ["aa", "bb", "cc"]


def test_without_a_list_plugins_may_ask_for_the_front_or_the_end(site: FakeSite) -> None:
    for name, mark in {
        "aa": "trylast",
        "bb": "",
        "cc": "tryfirst",
        "dd": "",
        "ee": "tryfirst",
    }.items():
        marked = f"({mark}=True)" if mark else ""
        hook = f"@mlxfill.hookimpl{marked}\ndef mlxfill_observe(event): ...\n"
        plain = "@mlxfill.hookimpl\ndef mlxfill_settings(): ...\n"
        site.add(name, HEADER + hook + plain)
    installed = PluginManager.load(load_config({})).names
    assert [n for n in installed if len(n) == 2] == ["cc", "ee", "bb", "dd", "aa"]
    assert PluginManager.load(enable("aa", "bb", "cc")).names == ("aa", "bb", "cc")


def test_a_list_says_which_are_on_and_in_which_order(site: FakeSite) -> None:
    for name in ("aa", "bb", "cc"):
        site.add(name)
    assert PluginManager.load(enable("cc", "aa")).names == ("cc", "aa")
    assert PluginManager.load(enable("cc", "aa"), ["bb"]).names == ("bb",)
    assert PluginManager.load(enable("cc", "aa"), []).names == ()
    assert PluginManager.load(enable()).names == ()


def test_a_plugin_that_is_off_is_not_imported(site: FakeSite) -> None:
    on, off = site.add("on"), site.add("off", "raise SystemExit")
    manager = PluginManager.load(load_config({"plugins": {"enabled": ["on"], "off": {"k": 1}}}))
    assert manager.names == ("on",)
    assert site.imported() == {on}
    assert off not in sys.modules


def test_scanning_imports_nothing(site: FakeSite) -> None:
    site.add("aa", commands=["go"], models=["small"])
    catalogue = scan()
    assert {"aa", "go", "small"} <= {*catalogue.plugins, *catalogue.commands, *catalogue.models}
    assert site.imported() == set()


@pytest.mark.parametrize("names", ["spec-ngram", b"spec-ngram", 3, [3], ["spec-ngram", None]])
def test_names_are_a_list(names: Any) -> None:
    said = re.escape(f"must be a list of names, not {names!r}")
    with pytest.raises(InputError, match=said):
        PluginManager.load(load_config({}), names)


# --- missing ---------------------------------------------------------------------


def test_a_listed_plugin_that_is_missing_gets_the_pip_command(
    site: FakeSite, workplace: Path
) -> None:
    site.add("zz-echo")
    (workplace / "mlxfill.toml").write_text('plugins = ["zz-eco"]')
    with pytest.raises(PluginError) as caught:
        PluginManager.load(load_config())
    assert str(caught.value) == (
        "mlxfill.toml: plugins.enabled: plugin 'zz-eco' is not installed; did you mean 'zz-echo'?"
    )
    there_are = ", ".join(sorted(scan().plugins))
    (line,) = refusal(names=["zz-qqqqqq"])
    assert line == f"plugin 'zz-qqqqqq' is not installed; there are: {there_are}"


@pytest.mark.parametrize(
    "slip", ["zz-pigeons", "pigeon", "pigon", "mlxfill-zz-pigeon", "zz_pigeon"]
)
def test_a_slip_is_no_advice_to_install_something(site: FakeSite, slip: str) -> None:
    site.add("zz-pigeon")
    assert refusal(names=[slip]) == [f"plugin {slip!r} is not installed; did you mean 'zz-pigeon'?"]


@pytest.mark.parametrize("name", ["zz-parrot", "mlxfill-zz-parrot", "zz-foo"])
def test_nobody_is_told_to_install_what_a_stranger_may_have_published(
    site: FakeSite, name: str
) -> None:
    site.add("zz-pigeon")
    (line,) = refusal(names=[name])
    assert line.startswith(f"plugin {name!r} is not installed; there are: ")
    assert "pip" not in line


def test_plugins_of_this_project_get_the_pip_command() -> None:
    assert str(missing("spec-ngram", [])) == (
        "plugin 'spec-ngram' is not installed; try: pip install mlxfill-spec-ngram"
    )
    assert str(missing("spec-ngrm", ["serve"])) == (
        "plugin 'spec-ngrm' is not installed; did you mean 'spec-ngram'? "
        "try: pip install mlxfill-spec-ngram"
    )


def test_trust_in_a_plugin_that_is_missing_stops_the_start(site: FakeSite) -> None:
    site.add("zz-pigeon", "raise SystemExit")
    (line,) = refusal({"plugins": [], "trust": {"assert": ["zz-pigeon", "zz-pigon"]}})
    assert line == (
        "config: trust.assert: plugin 'zz-pigon' is not installed; did you mean 'zz-pigeon'?"
    )


def test_a_table_of_a_plugin_that_is_missing_is_a_mistake(site: FakeSite) -> None:
    site.add("zz-echo")
    (line,) = refusal({"plugins": {"zz-eco": {"k": 1}}})
    assert line.startswith("config: plugins.zz-eco: plugin 'zz-eco' is not installed; ")


def test_all_that_is_wrong_with_a_list_is_said_at_once(site: FakeSite) -> None:
    site.add("bad", "raise SystemExit")
    lines = refusal({"plugins": ["zz-one", "bad", "zz-two"]})
    assert [line.split("'")[1] for line in lines] == ["zz-one", "bad", "zz-two"]


def test_a_plugin_listed_twice_is_a_mistake(site: FakeSite) -> None:
    site.add("aa")
    assert refusal({"plugins": ["aa", "aa"]}) == [
        "config: plugins.enabled: plugin 'aa' is listed twice; list it once"
    ]


# --- broken ----------------------------------------------------------------------


@each_broken
def test_a_listed_plugin_that_is_broken_stops_the_start(
    site: FakeSite, source: str, cause: str
) -> None:
    site.add("bad", source, version="2.1")
    for lines in (refusal({"plugins": ["bad"]}), refusal(names=["bad"])):
        (line,) = lines
        assert "plugin 'bad' (mlxfill-bad 2.1, entry point mlxfill_bad) " in line
        assert cause in line
        assert "try: pip install --upgrade --force-reinstall mlxfill-bad" in line


MENDED = {
    "syntax": ("x = 1\ndef broken(:", ", line 2"),
    "import": ("import mlxfill\n\nimport mlxfill_gone_module", ", line 3"),
    "in a library": ("import json\njson.loads('')", ", line 2"),
    "no api": ("import mlxfill", ""),
    "no mark": (HEADER + "def mlxfill_observe(event): pass", ""),
}


@pytest.mark.parametrize(("source", "line"), MENDED.values(), ids=list(MENDED))
def test_the_author_of_a_broken_plugin_is_told_the_place(
    site: FakeSite, source: str, line: str
) -> None:
    module = site.add("bad", source)
    origin = {"url": site.folder.as_uri(), "dir_info": {"editable": True}}
    (site.folder / f"{module}-1.0.dist-info" / "direct_url.json").write_text(json.dumps(origin))
    (told,) = refusal(names=["bad"])
    assert told.endswith(f"; mend {site.folder / module}.py{line}")
    assert "pip" not in told


def test_who_installed_a_folder_is_told_to_install_it_editable(site: FakeSite) -> None:
    module = site.add("bad", "import mlxfill")
    origin = {"url": "file:///home/me/my%20plugin", "dir_info": {}}
    (site.folder / f"{module}-1.0.dist-info" / "direct_url.json").write_text(json.dumps(origin))
    (told,) = refusal(names=["bad"])
    assert told.endswith("mend it in /home/me/my plugin, then: pip install -e '/home/me/my plugin'")


@pytest.mark.parametrize(
    "origin", ["", "[]", "{", '{"url": "https://a/b.zip", "archive_info": {}}', '{"dir_info": 1}']
)
def test_other_origins_are_installed_anew(site: FakeSite, origin: str) -> None:
    module = site.add("bad", "import mlxfill")
    (site.folder / f"{module}-1.0.dist-info" / "direct_url.json").write_text(origin)
    (told,) = refusal(names=["bad"])
    assert "; try: pip install --upgrade --force-reinstall mlxfill-bad, or" in told


def test_a_plugin_for_a_newer_core_is_cured_by_a_newer_core(site: FakeSite) -> None:
    site.add("bad", "MLXFILL_API = 9", version="2.1")
    (line,) = refusal(names=["bad"])
    assert line == (
        "plugin 'bad' (mlxfill-bad 2.1, entry point mlxfill_bad) is written for API 9, this "
        "mlxfill has API 2; try: pip install --upgrade mlxfill, or pip uninstall mlxfill-bad"
    )


@each_broken
def test_without_a_list_a_broken_plugin_is_skipped_and_reported(
    site: FakeSite, source: str, cause: str
) -> None:
    site.add("bad", source)
    site.add("good")
    manager = PluginManager.load(load_config({}))
    assert "good" in manager.names
    assert "bad" not in manager.names
    (fault,) = [fault for fault in manager.faults if fault.plugin == "bad"]
    assert cause in fault.message
    assert "mlxfill-bad 1.0" in fault.message
    assert "\n" not in fault.message


def test_a_plugin_that_has_a_table_is_named_by_the_config(site: FakeSite) -> None:
    site.add("bad", "raise SystemExit")
    (line,) = refusal({"plugins": {"bad": {"k": 1}}})
    assert line.startswith("config: plugins.bad: plugin 'bad' (mlxfill-bad 1.0")


def test_a_tolerant_start_reports_everything_and_goes_on(site: FakeSite) -> None:
    site.add("bad", "raise SystemExit")
    site.add("good")
    manager = PluginManager.load(enable("bad", "good", "zz-gone"), tolerant=True)
    assert manager.names == ("good",)
    assert [fault.plugin for fault in manager.faults] == ["bad", "zz-gone"]


def test_ctrl_c_during_an_import_is_not_swallowed(site: FakeSite) -> None:
    site.add("slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        PluginManager.load(load_config({}))


def test_metadata_that_cannot_be_read_is_reported(site: FakeSite) -> None:
    site.add("good")
    module = site.add("odd")
    points = site.folder / f"{module}-1.0.dist-info" / "entry_points.txt"
    points.write_bytes(b"[mlxfill]\nodd = \xff")
    manager = PluginManager.load(load_config({}))
    assert "good" in manager.names
    assert [fault.where for fault in manager.faults if "Unicode" in fault.message] == ["metadata"]


# --- doubled ---------------------------------------------------------------------


def test_two_distributions_that_claim_one_name_are_both_named(site: FakeSite) -> None:
    site.add("same", distribution="first-owner")
    site.add("same", distribution="second-owner", version="3.0")
    (line,) = refusal({"plugins": ["same"]})
    assert "plugin 'same' is claimed more than once" in line
    assert "(first-owner 1.0, entry point first_owner)" in line
    assert "(second-owner 3.0, entry point second_owner)" in line
    assert "pip uninstall" in line
    manager = PluginManager.load(load_config({}))
    assert "same" not in manager.names
    assert [fault.plugin for fault in manager.faults] == ["same"]
    assert site.imported() == set()


def test_a_distribution_found_twice_counts_once(
    site: FakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxfill_testing.installed import FakeSite

    site.add("same", distribution="Same_Owner", version="1.0")
    newer = FakeSite(tmp_path / "newer")
    newer.add("same", distribution="same-owner", version="2.0")
    monkeypatch.syspath_prepend(newer.folder)
    (claim,) = scan().plugins["same"]
    assert claim.version == "2.0"
    assert PluginManager.load(enable("same")).names == ("same",)
    newer.forget()


def test_one_folder_twice_on_the_path_counts_once(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add("same")
    monkeypatch.syspath_prepend(site.folder)
    assert PluginManager.load(enable("same")).names == ("same",)


# --- settings --------------------------------------------------------------------


def test_settings_come_from_the_plugins_table(site: FakeSite) -> None:
    site.add("aa", HEADER + SETTINGS)
    site.add("bb")
    config = load_config({"plugins": {"enabled": ["aa", "bb"], "aa": {"k": 3}}})
    manager = PluginManager.load(config)
    assert manager.settings("aa").k == 3
    assert manager.settings("bb") is None


@pytest.mark.parametrize("listed", [True, False])
def test_a_wrong_setting_names_file_and_key(site: FakeSite, workplace: Path, listed: bool) -> None:
    site.add("aa", HEADER + SETTINGS)
    head = '[plugins]\nenabled = ["aa"]\n' if listed else ""
    (workplace / "mlxfill.toml").write_text(f"{head}[plugins.aa]\nkk = 1")
    with pytest.raises(ConfigError) as caught:
        PluginManager.load(load_config())
    assert str(caught.value) == ("mlxfill.toml: plugins.aa.kk is an unknown key; did you mean 'k'?")


# --- models by name --------------------------------------------------------------


def test_a_model_is_found_though_its_plugin_is_off(site: FakeSite, tmp_path: Path) -> None:
    source = HEADER + MODEL.format(folder=str(tmp_path), model="zz-small")
    module = site.add("zz-models", source, models=["zz-small"])
    manager = PluginManager.load(load_config({}), [])
    assert site.imported() == set()
    assert manager.resolve_model("zz-other") is None
    assert site.imported() == set()
    assert manager.resolve_model("zz-small") == tmp_path
    assert site.imported() == {module}
    assert manager.names == ()


def test_a_model_that_two_plugins_announce_is_refused(site: FakeSite) -> None:
    site.add("zz-a", models=["zz-small"])
    site.add("zz-b", models=["zz-small"])
    manager = PluginManager.load(load_config({}), [])
    with pytest.raises(PluginError, match="model 'zz-small' is claimed more than once"):
        manager.resolve_model("zz-small")


def test_a_broken_plugin_behind_a_model_is_named(site: FakeSite) -> None:
    site.add("zz-a", "raise SystemExit", models=["zz-small"])
    manager = PluginManager.load(load_config({}), [])
    with pytest.raises(PluginError, match=r"plugin 'zz-a' \(mlxfill-zz-a 1.0"):
        manager.resolve_model("zz-small")


def test_a_model_announced_without_a_plugin_is_named(site: FakeSite) -> None:
    module = site.add("zz-a", models=["zz-small"])
    points = site.folder / f"{module}-1.0.dist-info" / "entry_points.txt"
    points.write_text("[mlxfill.models]\nzz-small = elsewhere")
    manager = PluginManager.load(load_config({}), [])
    with pytest.raises(PluginError, match="belongs to no plugin of mlxfill-zz-a"):
        manager.resolve_model("zz-small")
