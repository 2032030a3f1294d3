"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlxfill.cli import main
from mlxfill.plugins import Catalogue
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

@mlxfill.hookimpl
def mlxfill_observe(event):
    pass
"""
COMMANDS = """
@mlxfill.hookimpl
def mlxfill_register_commands(app):
    @app.command("zz-go")
    def go(size: int = 3):
        "Go somewhere."
        {body}
"""


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        self.lines = out.splitlines()
        self.complaints = [line.removeprefix("error: ") for line in err.splitlines()]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> Outcome:
        code = main(arguments)
        return Outcome(code, *capsys.readouterr())

    return run


# --- help and wrong use ----------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(run: Any, arguments: list[str]) -> None:
    outcome = run(*arguments)
    assert outcome.code == 0
    assert outcome.out.startswith("Usage: mlxfill ")
    assert "\n  plugins " in outcome.out
    assert "\n  config " in outcome.out
    assert outcome.err == ""


@pytest.mark.parametrize(
    ("arguments", "wrong", "command"),
    [
        (["confg"], "confg", "mlxfill"),
        (["--nonsense"], "--nonsense", "mlxfill"),
        (["--config"], "--config", "mlxfill"),
        (["config"], "Missing command", "mlxfill config"),
        (["config", "shw"], "shw", "mlxfill config"),
        (["config", "show", "-x"], "-x", "mlxfill config show"),
        (["config", "show", "--config"], "--config needs the name of a file", "mlxfill"),
        (["plugins", "info"], "NAME", "mlxfill plugins info"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    run: Any, arguments: list[str], wrong: str, command: str
) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: ")
    assert wrong in line
    assert line.endswith(f" (see {command} --help)")


@pytest.mark.parametrize(("given", "said"), [("abc", "integer"), ("1.5", "integer")])
def test_a_wrong_number_is_named(run: Any, given: str, said: str) -> None:
    outcome = run("generate", "--max-tokens", given, "hi")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert f"'{given}'" in outcome.err
    assert said in outcome.err
    assert "Input" not in outcome.err


def test_a_misspelt_command_gets_the_nearest_one(run: Any) -> None:
    assert "Did you mean 'config'?" in run("confg").err


@pytest.mark.parametrize(
    ("command", "distribution"), [("serve", "mlxfill-serve"), ("tune", "mlxfill-bench")]
)
def test_a_command_of_a_plugin_that_is_not_installed(
    run: Any, monkeypatch: pytest.MonkeyPatch, command: str, distribution: str
) -> None:
    for place in ("mlxfill.cli.commands.scan", "mlxfill.plugins.manager.scan"):
        monkeypatch.setattr(place, lambda: Catalogue({}, {}, {}, {}, []))
    outcome = run(command)
    assert outcome.code == 2
    assert outcome.complaints == [
        f"the command {command!r} comes with a plugin: pip install {distribution}"
    ]


def test_the_program_is_started_as_a_module_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlxfill", "confg"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: No such command 'confg'")


def test_ctrl_c_while_the_program_is_imported_is_no_traceback(workplace: Path) -> None:
    (workplace / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "mlxfill", "doctor"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{workplace}:{':'.join(sys.path)}"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_help_imports_neither_mlx_nor_transformers_nor_plugins(site: FakeSite) -> None:
    site.add("zz-heavy", "raise SystemExit", commands=["zz-go"])
    code = (
        "import sys; from mlxfill.cli import main; main(['--help']); "
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": f"{site.folder}:{':'.join(sys.path)}"},
    )
    *page, modules = done.stdout.splitlines()
    assert any(line.startswith("  zz-go ") for line in page)
    assert not {"mlx", "mlx_lm", "transformers", "rich", "cattrs"} & set(modules.split())
    assert "mlxfill_zz_heavy" not in modules.split()


# --- errors ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "code", "complaint"),
    [
        ("mlxfill.InputError('k must be 1')", 2, "k must be 1"),
        ("mlxfill.ConfigError('one\\ntwo')", 2, "one\nerror: two"),
        ("mlxfill.PluginError('gone')", 2, "gone"),
        ("mlxfill.ModelError('no shard')", 1, "no shard"),
        ("RuntimeError('a\\nb')", 1, "RuntimeError: a b (--debug shows where)"),
        ("KeyboardInterrupt", 130, None),
        ("__import__('typer').Exit(5)", 5, None),
        ("__import__('typer').Abort", 1, "aborted"),
    ],
)
def test_what_a_command_raises_ends_in_one_line(
    run: Any, site: FakeSite, raised: str, code: int, complaint: str | None
) -> None:
    site.add("zz-go", HEADER + COMMANDS.format(body=f"raise {raised}"), commands=["zz-go"])
    outcome = run("zz-go")
    assert outcome.code == code
    assert outcome.err == (f"error: {complaint}\n" if complaint else "")


def test_debug_shows_the_traceback(run: Any, site: FakeSite) -> None:
    site.add("zz-go", HEADER + COMMANDS.format(body="raise RuntimeError('x')"), commands=["zz-go"])
    for arguments in (["--debug", "zz-go"], ["zz-go", "--debug"]):
        outcome = run(*arguments)
        assert outcome.code == 1
        assert outcome.err.startswith("Traceback ")
        assert outcome.complaints[-1].startswith("RuntimeError: x")


def test_options_of_every_command_end_at_two_dashes(run: Any) -> None:
    outcome = run("plugins", "info", "--", "--debug")
    assert outcome.code == 2
    assert outcome.complaints[0].startswith("plugin '--debug' is not installed")


# --- config ----------------------------------------------------------------------


def test_show_prints_each_value_with_its_source(
    run: Any, site: FakeSite, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = "int = 8\n    key: str = __import__('attrs').field(default='sesame', repr=False)"
    site.add("aa", HEADER + SETTINGS.replace("int = 8", hidden))
    site.add("bb", HEADER)
    (workplace / "mlxfill.toml").write_text(
        'model = "tiny"\n[plugins]\nenabled = ["aa"]\n[plugins.bb]\nx = [1]\n'
        "[generation]\ntop_k = 5\n"
    )
    monkeypatch.setenv("MLXFILL_GENERATION__SEED", "7")
    monkeypatch.setenv("MLXFILL_PLUGINS__AA__K", "9")
    outcome = run("config", "show")
    assert outcome.code == 0
    shown = {tuple(part.strip() for part in line.split("  # ")) for line in outcome.lines}
    assert shown >= {
        ('model = "tiny"', "mlxfill.toml"),
        ("draft = (not set)", "default"),
        ('plugins.enabled = ["aa"]', "mlxfill.toml"),
        ("generation.top_k = 5", "mlxfill.toml"),
        ("generation.seed = 7", "MLXFILL_GENERATION__SEED"),
        ("generation.max_tokens = 512", "default"),
        ('trust.assert = ["constrain", "fill-strict"]', "default"),
        ("plugins.aa.k = 9", "MLXFILL_PLUGINS__AA__K"),
        ('plugins.aa.key = "***"', "default"),
        ("plugins.bb.x = [1]", "mlxfill.toml"),
    }


def test_check_approves_or_complains(run: Any, site: FakeSite, workplace: Path) -> None:
    site.add("aa", HEADER + SETTINGS)
    good, bad = workplace / "good.toml", workplace / "bad.toml"
    good.write_text('plugins = ["aa"]')
    bad.write_text('plugins = ["aa"]\n[generation]\nsed = 1\ntop_p = 2.5')
    outcome = run("config", "check", "--config", str(good))
    assert (outcome.code, outcome.lines) == (0, [f"{good}: ok, plugins on: aa"])
    outcome = run(f"--config={bad}", "config", "check")
    assert outcome.code == 2
    assert sorted(outcome.complaints) == [
        f"{bad}: generation.sed is an unknown key; did you mean 'seed'?",
        f"{bad}: generation.top_p must be 0 to 1, not 2.5",
    ]


def test_check_names_the_mistakes_of_the_core_and_of_plugins_at_once(
    run: Any, site: FakeSite, workplace: Path
) -> None:
    site.add("aa", HEADER + SETTINGS)
    (workplace / "mlxfill.toml").write_text(
        'plugins.enabled = ["aa", "zz-gone"]\nplugins.aa.kk = 1\nplugins.bb = 3\n'
        "generation.top_p = 2.5\nmodle = 'x'"
    )
    outcome = run("config", "check")
    assert outcome.code == 2
    told = [line.removeprefix("mlxfill.toml: ").split()[0] for line in outcome.complaints]
    assert sorted(told) == [
        "generation.top_p",
        "modle",
        "plugins.aa.kk",
        "plugins.bb",
        "plugins.enabled:",
    ]


@pytest.mark.parametrize(
    ("plugins", "complaint"),
    [
        ('["zz-gone"]', "plugin 'zz-gone' is not installed; there are: "),
        (
            '["zz-bad"]',
            "plugin 'zz-bad' (mlxfill-zz-bad 1.0, entry point mlxfill_zz_bad) cannot be",
        ),
        ('["zz-bad", "zz-bad"]', "plugin 'zz-bad' (mlxfill-zz-bad 1.0"),
    ],
)
def test_a_bad_plugin_in_the_config_is_one_line(
    run: Any, site: FakeSite, workplace: Path, plugins: str, complaint: str
) -> None:
    site.add("zz-bad", "raise SystemExit")
    (workplace / "mlxfill.toml").write_text(f"plugins = {plugins}")
    outcome = run("config", "check")
    assert outcome.code == 2
    assert outcome.complaints[0].startswith(f"mlxfill.toml: plugins.enabled: {complaint}")
    assert len(outcome.complaints) == plugins.count('",') + 1


def test_check_mentions_plugins_that_were_skipped(run: Any, site: FakeSite) -> None:
    site.add("zz-bad", "raise SystemExit")
    outcome = run("config", "check")
    assert outcome.code == 0
    assert "skipped: plugin 'zz-bad' (mlxfill-zz-bad 1.0" in outcome.err


def test_check_reads_the_tables_of_plugins_that_are_off(
    run: Any, site: FakeSite, workplace: Path
) -> None:
    site.add("zz-off", HEADER + SETTINGS)
    site.add("zz-bad", "raise SystemExit")
    site.add("zz-asleep", "raise SystemExit")
    config = workplace / "mlxfill.toml"
    config.write_text("[plugins]\nenabled = []\n[plugins.zz-off]\nkk = 3\n[plugins.zz-bad]\nk = 1")
    outcome = run("config", "check")
    assert outcome.code == 2
    unknown, broken = outcome.complaints
    assert unknown.startswith("mlxfill.toml: plugins.zz-off.kk is an unknown key")
    assert broken.startswith("mlxfill.toml: plugins.zz-bad: plugin 'zz-bad' (mlxfill-zz-bad 1.0")
    config.write_text("[plugins]\nenabled = []\n[plugins.zz-off]\nk = 3")
    assert run("config", "check").code == 0


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("MLXFILL_GENERATION_MAX_TOKENS", "MLXFILL_GENERATION__MAX_TOKENS"),
        ("MLXFILL_PLUGINS_ZZ_ON_K", "MLXFILL_PLUGINS__ZZ_ON__K"),
        ("MLXFILL_MODLE", "MLXFILL_MODEL"),
        ("MLXFILL_CONFG", "MLXFILL_CONFIG"),
        ("MLXFILL_SOURCES", "MLXFILL_TRACE"),
        ("MLXFILL_QQQQQQQQQQQQQQQQQQQQQQQ", ""),
    ],
)
@pytest.mark.parametrize("command", ["check", "show"])
def test_a_variable_that_nothing_reads_is_named_and_does_no_harm(  # noqa: PLR0913, PLR0917 - what is set
    run: Any,
    site: FakeSite,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    variable: str,
    meant: str,
) -> None:
    site.add("zz-on", HEADER + SETTINGS)
    for known in ("MLXFILL_GENERATION__SEED", "MLXFILL_API_KEY"):
        monkeypatch.setenv(known, "7")
    monkeypatch.setenv("MLXFILL_EMPTY", "")
    monkeypatch.setenv(variable, "8")
    outcome = run("config", command)
    assert outcome.code == 0
    hint = f"; did you mean {meant!r}?" if meant else ""
    assert [line for line in outcome.err.splitlines() if line.startswith("warning: ")] == [
        f"warning: the variable {variable} is not read by mlxfill, and sets nothing{hint}"
    ]


def test_trust_in_a_plugin_that_is_not_installed_is_a_mistake(
    run: Any, site: FakeSite, workplace: Path
) -> None:
    site.add("zz-sure", "raise SystemExit")
    trust = '[plugins]\nenabled = []\n[trust]\nassert = ["{}"]'
    (workplace / "mlxfill.toml").write_text(trust.format("zz-sre"))
    outcome = run("config", "check")
    assert outcome.code == 2
    assert outcome.complaints == [
        "mlxfill.toml: trust.assert: plugin 'zz-sre' is not installed; did you mean 'zz-sure'?"
    ]
    (workplace / "mlxfill.toml").write_text(trust.format("zz-sure"))
    assert run("config", "check").code == 0


# --- plugins ---------------------------------------------------------------------


def rows(outcome: Outcome) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in outcome.lines}


def test_list_shows_what_is_on_off_broken_and_missing(
    run: Any, site: FakeSite, workplace: Path
) -> None:
    site.add("zz-on", HEADER + SETTINGS, version="1.2")
    site.add("zz-off", "raise SystemExit")
    site.add("zz-bad", "raise SystemExit(7)")
    (workplace / "mlxfill.toml").write_text('plugins = ["zz-bad", "zz-on", "zz-gone"]')
    outcome = run("plugins", "list")
    assert outcome.code == 0
    table = rows(outcome)
    assert table["NAME"][:4] == ["NAME", "STATE", "VERSION", "DISTRIBUTION"]
    assert table["zz-on"] == ["zz-on", "on", "1.2", "mlxfill-zz-on", "settings,", "observe"]
    assert table["zz-off"] == ["zz-off", "off", "1.0", "mlxfill-zz-off"]
    assert table["zz-bad"][:4] == ["zz-bad", "broken", "1.0", "mlxfill-zz-bad"]
    assert "SystemExit: 7" in next(line for line in outcome.lines if line.startswith("zz-bad"))
    assert table["zz-gone"][:2] == ["zz-gone", "missing"]
    assert "mlxfill_zz_off" not in site.imported()


def test_list_says_what_can_be_had_of_a_plugin_that_is_off(
    run: Any, site: FakeSite, workplace: Path
) -> None:
    site.add("zz-ready", "raise SystemExit", commands=["zz-go"], models=["zz-small"])
    (workplace / "mlxfill.toml").write_text("plugins = []")
    (line,) = [line for line in run("plugins", "list").lines if line.startswith("zz-ready")]
    assert line.split()[:3] == ["zz-ready", "on", "demand"]
    assert line.endswith("mlxfill zz-go, --model zz-small")
    assert "mlxfill_zz_ready" not in site.imported()


def test_a_plugin_that_registers_nothing_is_named(run: Any, site: FakeSite) -> None:
    site.add("zz-mute")
    told = (
        "plugin 'zz-mute' (mlxfill-zz-mute 1.0, entry point mlxfill_zz_mute) registers no hook; "
        "decorate the functions that are its hooks with @mlxfill.hookimpl"
    )
    (line,) = [line for line in run("plugins", "list").lines if line.startswith("zz-mute")]
    assert line.endswith(told)
    assert json.loads(run("plugins", "info", "zz-mute", "--json").out)["problem"] == told


def test_list_follows_what_is_installed(run: Any, site: FakeSite) -> None:
    module = site.add("zz-aa")
    assert "zz-aa" in rows(run("plugins", "list"))
    site.remove(module)
    assert "zz-aa" not in rows(run("plugins", "list"))


def test_list_names_both_distributions_of_a_doubled_name(run: Any, site: FakeSite) -> None:
    site.add("zz-same", distribution="first-owner")
    site.add("zz-same", distribution="second-owner")
    listed = {status["name"]: status for status in json.loads(run("plugins", "list", "--json").out)}
    status = listed["zz-same"]
    assert status["state"] == "broken"
    assert set(status["distribution"].split(" and ")) == {"first-owner", "second-owner"}
    assert "claimed more than once" in status["problem"]


def test_list_as_json(run: Any, site: FakeSite, workplace: Path) -> None:
    site.add(
        "zz-on", HEADER + SETTINGS, commands=["zz-go"], models=["zz-small"], summary="Does things"
    )
    (workplace / "mlxfill.toml").write_text('plugins = ["zz-on"]')
    first, *_ = json.loads(run("plugins", "list", "--json").out)
    assert first == {
        "name": "zz-on",
        "state": "on",
        "distribution": "mlxfill-zz-on",
        "version": "1.0",
        "entry_point": "mlxfill_zz_on",
        "summary": "Does things",
        "hooks": ["mlxfill_settings", "mlxfill_observe"],
        "commands": ["zz-go"],
        "models": ["zz-small"],
        "settings": {"k": "8"},
        "problem": None,
    }


def test_info_shows_one_plugin(run: Any, site: FakeSite, workplace: Path) -> None:
    site.add("zz-on", HEADER + SETTINGS, models=["zz-small"], summary="Does things")
    (workplace / "mlxfill.toml").write_text("[plugins.zz-on]\nk = 3")
    outcome = run("plugins", "info", "zz-on")
    assert outcome.code == 0
    shown = dict(line.split(maxsplit=1) for line in outcome.lines)
    assert shown["name"] == "zz-on"
    assert shown["state"] == "on"
    assert shown["summary"] == "Does things"
    assert shown["hooks"] == "mlxfill_settings, mlxfill_observe"
    assert shown["models"] == "zz-small"
    assert shown["setting"] == "k = 3"
    assert json.loads(run("plugins", "info", "zz-on", "--json").out)["settings"] == {"k": "3"}


def test_info_of_an_unknown_plugin(run: Any, site: FakeSite) -> None:
    site.add("zz-echo")
    outcome = run("plugins", "info", "zz-eco")
    assert outcome.code == 2
    assert outcome.complaints == ["plugin 'zz-eco' is not installed; did you mean 'zz-echo'?"]


# --- commands of plugins ---------------------------------------------------------


def test_an_announced_command_is_on_the_help_page_and_works(
    run: Any, site: FakeSite, workplace: Path
) -> None:
    source = HEADER + COMMANDS.format(body="print('went', size)")
    module = site.add("zz-go", source, commands=["zz-go"], summary="Goes somewhere.")
    (workplace / "mlxfill.toml").write_text("plugins = []")
    page = run("--help")
    assert ["zz-go", "Goes", "somewhere."] in [line.split() for line in page.lines]
    assert site.imported() == set()
    outcome = run("zz-go", "--size", "4")
    assert (outcome.code, outcome.out) == (0, "went 4\n")
    assert site.imported() == {module}


def test_a_command_that_is_not_announced_works_while_its_plugin_is_on(
    run: Any, site: FakeSite, workplace: Path
) -> None:
    site.add("zz-quiet", HEADER + COMMANDS.format(body="print('went')"))
    assert run("zz-go").out == "went\n"
    (workplace / "mlxfill.toml").write_text("plugins = []")
    assert run("zz-go").code == 2


def test_the_commands_of_the_core_cannot_be_taken(run: Any, site: FakeSite) -> None:
    site.add("zz-thief", "raise SystemExit", commands=["config"])
    assert run("config", "check").code == 0


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise SystemExit", "cannot be imported: SystemExit"),
        (HEADER, "announces the command 'zz-go' and does not add it"),
        (
            HEADER + "@mlxfill.hookimpl\ndef mlxfill_register_commands(app): 1 / 0",
            "fails to add its commands: ZeroDivisionError: division by zero",
        ),
        (
            HEADER + COMMANDS.format(body="pass").replace("int", "'Unknown'"),
            "fails to add its commands: NameError: name 'Unknown' is not defined",
        ),
    ],
)
def test_an_announced_command_that_cannot_be_had_names_the_plugin(
    run: Any, site: FakeSite, source: str, cause: str
) -> None:
    site.add("zz-go", source, commands=["zz-go"])
    outcome = run("zz-go")
    assert outcome.code == 2
    (line,) = outcome.complaints
    assert line.startswith("plugin 'zz-go' (mlxfill-zz-go 1.0, entry point mlxfill_zz_go) ")
    assert cause in line


def test_a_broken_command_of_a_plugin_does_not_hide_a_typing_error(
    run: Any, site: FakeSite
) -> None:
    source = HEADER + COMMANDS.format(body="pass").replace("int", "'Unknown'")
    site.add("zz-quiet", source)
    outcome = run("confg")
    assert outcome.code == 2
    assert outcome.complaints[0].startswith("No such command 'confg'.")
