"""``mlxfill doctor``: findings, hints and the exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from full_disk import full_after
from mlxfill import BackendMissingError
from mlxfill.cli.doctor import machine
from mlxfill.cli.doctor.model import verdict
from mlxfill.policy.cost import CostCurve
from mlxfill_testing import tiny_folder
from mlxfill_testing.installed import HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill_testing.installed import FakeSite

BUNDLED = "/env/lib/python3.11/site-packages/mlx_cpu.libs/libblas-bd8a282c.so.3.10.0"
OPENBLAS = "/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3"
NUMPY = "/env/lib/python3.11/site-packages/numpy.libs/libscipy_openblas64_-1.so"


HOOK = """
@mlxfill.hookimpl
def mlxfill_observe(event): ...
"""


@pytest.fixture(autouse=True)
def only_own_plugins(site: FakeSite) -> None:
    """Other plugins that are installed here, broken or not, are none of these tests' business."""
    site.add("aa", HEADER + HOOK)
    Path("mlxfill.toml").write_text('plugins = ["aa"]\n')


@pytest.fixture
def findings(run: Any) -> Callable[..., Any]:
    """What ``--json`` prints."""

    def findings(*arguments: str, code: int = 0) -> Any:
        outcome = run("doctor", "--json", *arguments)
        assert (outcome.code, outcome.err) == (code, "")
        return json.loads(outcome.out)

    return findings


def test_versions_device_config_and_plugins(run: Any, findings: Any) -> None:
    found = findings()
    assert {"python", "mlxfill", "mlx", "mlx-lm", "transformers"} <= set(found["versions"])
    assert found["device"]["memory_bytes"] > 1 << 28
    assert found["config_file"] == "mlxfill.toml"
    assert found["plugins"]["aa"] == "1.0 on"
    assert found["problems"] == []
    page = run("doctor").out
    assert f"mlxfill {found['versions']['mlxfill']}" in page
    assert "aa 1.0 on" in page
    assert page.endswith("nothing is broken\n")


def test_a_path_stays_in_one_piece_where_no_terminal_reads_it(run: Any, workplace: Path) -> None:
    file = workplace / ("a" * 100) / ("b" * 100) / "mlxfill.toml"
    file.parent.mkdir(parents=True)
    file.write_text('plugins = ["aa"]\n')
    assert str(file) in run("--config", str(file), "doctor").out


def test_a_model_is_examined(run: Any, findings: Any, model: str) -> None:
    facts = findings("--model", model)["model"]
    assert facts["architecture"] == "llama"
    assert facts["dtype"] == "float32"
    assert facts["caches"] == {"KVCache": 4}
    assert (facts["split"], facts["rewind"]) == ("", "")
    assert list(facts["cost"]) == ["1", "2", "4", "8", "16", "32"]
    assert facts["cost"]["1"] == 1.0
    page = run("doctor", "--model", model).out
    assert "split         yes" in page
    assert "rewind        yes" in page
    assert page.count("█") > 6
    assert "a window of 8 costs " in page
    assert "kept for the next start; until now" in page


def test_a_cost_measured_beside_other_programs_is_provisional(
    run: Any, findings: Any, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (4.0, 0.0, 0.0))
    assert "provisional: other programs ran (load 4.0 on 2 cores)" in run(
        "doctor", "--model", model
    ).out.replace("\n", " ")
    assert findings("--model", model)["model"]["disturbed"] == "load 4.0 on 2 cores"
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    page = run("doctor", "--model", model).out
    assert "provisional" not in page
    assert "kept for the next start\n" in page, "what was provisional is not held for known"


@pytest.mark.parametrize("cause", ["File too large", "Not a directory"])
def test_a_cost_that_cannot_be_kept_is_told(
    run: Any, model: str, own_caches: Path, cause: str
) -> None:
    cache = own_caches / "cache"
    if cause == "Not a directory":
        cache.touch()
        page = run("doctor", "--model", model).out
    else:
        with full_after(0):
            page = run("doctor", "--model", model).out
        assert list((cache / "mlxfill" / "cost").iterdir()) == []
    said = f"could not be kept for the next start: {cache / 'mlxfill' / 'cost'}: {cause}"
    assert said in page
    assert "kept for the next start;" not in page


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (1.0, "a window of 8 costs 1.0 steps: speculation pays once 1 of 7 guesses holds"),
        (1.3, "a window of 8 costs 1.3 steps: speculation pays once 1 of 7 guesses holds"),
        (3.7, "a window of 8 costs 3.7 steps: speculation pays once 3 of 7 guesses hold"),
        (7.6, "a window of 8 costs 7.6 steps: speculation stays off"),
        (9.0, "a window of 8 costs 9.0 steps: speculation stays off"),
    ],
)
def test_the_cost_of_a_window_is_put_into_words(cost: float, said: str) -> None:
    assert verdict(CostCurve({1: 1.0, 8: cost}), "") == said


def test_without_rewinding_speculation_stays_off() -> None:
    said = verdict(CostCurve.free(), "its X has no rewinder")
    assert said.endswith("(its X has no rewinder): speculation stays off")


# --- what is broken --------------------------------------------------------------


def test_a_broken_plugin_is_a_problem(findings: Any, site: FakeSite) -> None:
    site.add("bb", "raise ImportError('no such thing')")
    Path("mlxfill.toml").write_text('plugins = ["aa", "bb"]\n')
    found = findings(code=1)
    (problem,) = found["problems"]
    assert "mlxfill-bb 1.0" in problem
    assert "no such thing" in problem


def test_what_two_distributions_claim_is_a_problem(findings: Any, site: FakeSite) -> None:
    site.add("bb", commands=["jacobi"], models=["zz"])
    site.add("cc", commands=["jacobi", "alone"], models=["zz"])
    command, model = findings(code=1)["problems"]
    both = "is claimed more than once, by (mlxfill-"
    assert f"command 'jacobi' {both}" in command
    assert f"model 'zz' {both}" in model
    assert "keep one, for example: pip uninstall mlxfill-" in command


def test_a_wrong_config_is_a_problem(run: Any, findings: Any) -> None:
    Path("mlxfill.toml").write_text("modle = 'x'\n[generation]\ntop_p = 2\n")
    problems = findings(code=1)["problems"]
    assert any("modle" in problem for problem in problems)
    assert any("generation.top_p" in problem for problem in problems)
    outcome = run("doctor")
    assert outcome.code == 1
    assert "problem: mlxfill.toml: modle " in outcome.out
    assert "no file" not in outcome.out
    assert "nothing is broken" not in outcome.out


def test_a_plugin_without_hooks_is_a_problem(findings: Any, site: FakeSite) -> None:
    site.add("bb", HEADER)
    Path("mlxfill.toml").write_text('plugins = ["aa", "bb"]\n')
    found = findings(code=1)
    (problem,) = found["problems"]
    assert "registers no hook; decorate" in problem
    assert found["plugins"]["bb"] == "1.0 on"


def test_tables_of_plugins_that_are_off_are_read(findings: Any, site: FakeSite) -> None:
    site.add("bb", HEADER + HOOK)
    Path("mlxfill.toml").write_text('plugins.enabled = ["aa"]\nplugins.bb.k = 1\n')
    assert findings(code=1)["problems"] == [
        "mlxfill.toml: plugins.bb: this plugin takes no settings"
    ]


def test_a_variable_that_nothing_reads_is_a_hint(
    findings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLXFILL_GENERATION_MAX_TOKENS", "8")
    hints = [line for line in findings()["hints"] if "MLXFILL_" in line]
    assert len(hints) == 1
    assert hints[0].endswith("did you mean 'MLXFILL_GENERATION__MAX_TOKENS'?")


def test_a_missing_model_is_a_problem(findings: Any) -> None:
    assert findings("--model", "nonsense", code=1)["problems"] == [
        "no model folder 'nonsense'; a model on the hub is OWNER/NAME"
    ]


def test_without_a_backend_the_rest_is_shown(
    run: Any, findings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise BackendMissingError("mlx has no backend here")

    monkeypatch.setattr("mlxfill.loading.model.require_backend", missing)
    found = findings("--model", "x", code=1)
    assert found["problems"] == ["mlx has no backend here"]
    assert found["device"] is None
    assert found["plugins"]["aa"] == "1.0 on"
    assert "mlx cannot compute here" in run("doctor").out


# --- which BLAS ------------------------------------------------------------------


@pytest.fixture
def mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that these libraries are loaded in a Linux process with the CPU build of mlx."""

    def mapped(*libraries: str) -> None:
        lines = [f"7f00-7f01 r-xp 00000000 08:01 17   {library}" for library in libraries]
        (tmp_path / "maps").write_text("\n".join(["7f00-7f01 rw-p 00000000 00:00 0", *lines]))
        monkeypatch.setattr(machine, "MAPS", tmp_path / "maps")
        monkeypatch.setattr(machine, "backends", lambda: ["mlx-cpu"])
        monkeypatch.setattr("sys.platform", "linux")

    return mapped


def test_the_bundled_blas_is_slow_and_has_a_remedy(mapped: Any) -> None:
    mapped(BUNDLED, NUMPY, "/usr/lib/libc.so.6")
    blas = machine.blas()
    assert blas is not None
    assert (blas.library, blas.fast) == (BUNDLED, False)
    assert blas.remedy is not None
    assert "LD_PRELOAD=/" in blas.remedy


def test_a_tuned_library_in_front_is_recognised(mapped: Any) -> None:
    mapped(BUNDLED, OPENBLAS)
    assert machine.blas() == machine.Blas(OPENBLAS, fast=True)


def test_the_remedy_names_what_is_installed_or_how_to_install_it(
    mapped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped(BUNDLED)
    monkeypatch.setattr(machine, "_PLACES", ())
    blas = machine.blas()
    assert blas is not None
    assert blas.remedy is not None
    assert blas.remedy.startswith("apt-get install libopenblas0-pthread, then LD_PRELOAD=/usr/lib/")


def test_elsewhere_the_question_does_not_arise(
    mapped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped(BUNDLED)
    monkeypatch.setattr(machine, "backends", lambda: ["mlx-metal"])
    assert machine.blas() is None
    monkeypatch.setattr(machine, "backends", lambda: ["mlx-cpu"])
    monkeypatch.setattr("sys.platform", "darwin")
    assert machine.blas() is None


# --- drafters ---------------------------------------------------------------------------------


def rewritten(folder: Path, **keys: Any) -> Path:
    """A tiny model whose config says something else as well."""
    file = tiny_folder(folder) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | keys), "utf-8")
    return folder


def test_a_head_that_is_passed_over_is_a_hint(findings: Any, run: Any, tmp_path: Path) -> None:
    folder = rewritten(tmp_path / "model", num_nextn_predict_layers=1)
    said = "promises an MTP head (num_nextn_predict_layers 1), its weights have none"
    found = findings("--model", str(folder))
    assert [said in hint for hint in found["hints"] if "MTP" in hint] == [True]
    assert found["problems"] == []
    assert said in run("doctor", "--model", str(folder)).out
    told = run("generate", "--model", str(folder), "-m", "2", "a").err
    assert told.count(said) == 1


def test_a_drafter_that_nobody_loads_is_a_problem(findings: Any, run: Any, tmp_path: Path) -> None:
    model = str(tiny_folder(tmp_path / "model"))
    draft = rewritten(tmp_path / "draft", medusa_num_heads=3)
    said = f"{draft} is a set of Medusa heads; no installed plugin loads it (kinds: none)"
    config = Path("mlxfill.toml")
    config.write_text(f'plugins = ["aa"]\ndraft = "{draft}"\n', "utf-8")
    assert findings("--model", model, code=1)["problems"] == [said]
    config.unlink()
    outcome = run("generate", "--no-plugins", "--model", model, "--draft", str(draft), "a")
    assert (outcome.code, outcome.err) == (1, f"error: {said}\n")
