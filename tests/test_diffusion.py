"""Another way to generate: the example plugin, installed by its path, answers like any other."""

from __future__ import annotations

import importlib
import json
import string
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mlxfill
from mlxfill_testing import plain, tiny_model, tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfill import Engine, Result

EXAMPLE = Path(__file__).parents[1] / "examples" / "diffusion"
LETTERS = string.ascii_lowercase
CONFIG: dict[str, Any] = {"plugins": {"enabled": ["diffusion", "spec-ngram"]}}
ORIGIN = "denoised"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that the example was installed into, on the path."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(folder)]
    subprocess.run([*command, *alone, str(EXAMPLE)], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        importlib.invalidate_caches()
        yield folder
    for name in [n for n in sys.modules if n.split(".")[0] == "mlxfill_diffusion"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def engine(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:  # noqa: ARG001
    """The toy model, with a plugin beside the example that would propose tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with mlxfill.load("alphabet", config=CONFIG) as engine:
            yield engine


@pytest.fixture(scope="module")
def slow(site: Path) -> Iterator[Engine]:  # noqa: ARG001
    """The same, one token a forward."""
    settled = {"plugins": {"enabled": ["diffusion"], "diffusion": {"threshold": 1.0}}}
    with mlxfill.load("alphabet", config=settled) as engine:
        yield engine


def run_of(first: str, last: str) -> str:
    a, b = LETTERS.index(first), LETTERS.index(last)
    return LETTERS[a : b + 1] if a <= b else LETTERS[b : a + 1][::-1]


def ask(engine: Engine, question: str, **options: Any) -> Result:
    return engine.generate([{"role": "user", "content": question}], **options)


# --- the text --------------------------------------------------------------------------


def test_the_toy_model_knows_its_alphabet(engine: Engine) -> None:
    pairs = [(a, b) for a in LETTERS for b in LETTERS[::3]]
    right = sum(ask(engine, a + b).text == run_of(a, b) for a, b in pairs)
    assert right >= 0.97 * len(pairs)


def test_a_forward_settles_many_tokens_and_all_are_told_of(engine: Engine) -> None:
    result = ask(engine, "az")
    stats = result.stats
    assert (result.text, result.finish_reason) == (LETTERS, "stop")
    assert set(result.origins) == {ORIGIN}
    assert stats.generated_tokens == len(LETTERS) == sum(stats.rounds)
    assert 1 <= stats.target_forwards < 10
    assert stats.tokens_per_forward > 2
    assert stats.decode_ms > 0
    assert stats.cache_tokens == ()
    assert result.faults == []


def test_at_threshold_one_a_forward_settles_one_token(slow: Engine) -> None:
    result = ask(slow, "ch")
    assert result.text == "cdefgh"
    assert result.stats.target_forwards >= len("cdefgh")
    assert len(result.stats.rounds) <= result.stats.target_forwards


def test_pieces_are_the_result(engine: Engine) -> None:
    pieces = list(engine.stream([{"role": "user", "content": "qc"}]))
    assert "".join(piece.text for piece in pieces) == run_of("q", "c")
    assert [piece.finish_reason for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].finish_reason == "stop"
    assert {piece.origin for piece in pieces if piece.token is not None} == {ORIGIN}


# --- limits ----------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 5, 26])
def test_max_tokens_is_exact_and_cuts_the_same_text(engine: Engine, most: int) -> None:
    result = ask(engine, "az", max_tokens=most)
    assert (result.text, result.finish_reason) == (LETTERS[:most], "length")


def test_without_a_limit_the_end_token_ends_it_and_without_that_the_context(
    engine: Engine,
) -> None:
    assert ask(engine, "cf", max_tokens=-1).text == "cdef"
    endless = ask(engine, "cf", max_tokens=-1, eos_token_ids=[])
    assert len(endless.tokens) + endless.stats.prompt_tokens == engine.context
    assert endless.finish_reason == "stop"


def test_a_stop_string_ends_inside_a_burst(engine: Engine) -> None:
    result = ask(engine, "az", stop=["jk"])
    assert (result.text, result.finish_reason) == ("abcdefghi", "stop")
    assert len(result.tokens) == len("abcdefghijk")


def test_any_token_may_be_the_end(engine: Engine) -> None:
    d = engine.tokenizer.encode("d", add_special_tokens=False)
    result = ask(engine, "az", eos_token_ids=d)
    assert (result.text, result.finish_reason) == ("abc", "stop")


def test_cancelling_ends_before_another_forward(slow: Engine) -> None:
    stop = threading.Event()
    stop.set()
    result = ask(slow, "az", cancel=stop)
    assert result.finish_reason == "cancelled"
    assert result.stats.target_forwards == 1


def test_a_run_may_be_left_at_any_piece(engine: Engine) -> None:
    run = engine.stream([{"role": "user", "content": "az"}])
    assert next(run).text == "a"
    run.close()
    assert run.stats.rounds == [1]
    assert ask(engine, "az").text == LETTERS


# --- sampling --------------------------------------------------------------------------


def test_a_seed_fixes_what_is_drawn(engine: Engine) -> None:
    def draws(seed: int) -> str:
        return ask(engine, "az", temperature=3.0, seed=seed, max_tokens=20).text

    assert draws(1) == draws(1)
    assert len({draws(seed) for seed in range(4)}) > 1
    shorter = ask(engine, "az", temperature=3.0, seed=1, max_tokens=7).text
    assert draws(1).startswith(shorter)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_p": 0.5}, "top_p 0.5: generation by diffusion knows temperature and seed only"),
        ({"repetition_penalty": 1.2}, "repetition_penalty 1.2"),
        ({"logprobs": True}, "'diffusion' does not generate token by token: leave out logprobs"),
        ({"top_logprobs": 2}, "leave out top_logprobs"),
    ],
)
def test_what_unmasking_cannot_do_is_refused(
    engine: Engine, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(mlxfill.InputError) as error:
        ask(engine, "az", **options)
    assert said in str(error.value)


# --- among the others ------------------------------------------------------------------


def test_other_models_are_left_alone(site: Path) -> None:  # noqa: ARG001
    model, prompt = tiny_model("llama"), [5, 9, 5, 9, 5]
    with mlxfill.Engine(model, tiny_tokenizer(), config=CONFIG, plugins=["diffusion"]) as engine:
        assert engine.generate(prompt, max_tokens=9).tokens == plain(model, prompt, 9).tokens


def test_rows_and_single_requests_agree(engine: Engine) -> None:
    prompts = [[{"role": "user", "content": question}] for question in ("ae", "zs")]
    rows = engine.generate_batch([{"messages": prompt} for prompt in prompts])
    assert [result.text for result in rows] == ["abcde", run_of("z", "s")]


def test_the_command_line_answers_with_it(site: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlxfill", "generate", "--model", "alphabet", "--json", "ch"],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(site), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert (result["text"], set(result["origins"])) == ("cdefgh", {ORIGIN})
