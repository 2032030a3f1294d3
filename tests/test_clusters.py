"""Two processes that share a model, as ``mlx.launch`` starts them, write what one process writes.

They run on this machine, over the loopback, with the ring backend.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

import mlxfill
from mlxfill_testing import tiny_folder
from patience import AT_ALL

if TYPE_CHECKING:
    from collections.abc import Iterator

BIN = Path(sys.executable).parent
ASK = "List the days of the week."
SCRIPT = """
import json, sys
import mlx.core as mx
import mlxfill
from mlxfill_testing import Guest, Script, ScriptedSource, engine_with, tiny_model

group = mx.distributed.init()
ask, cases, unfit = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]


def answer(ask, load, generate):
    with mlxfill.load("tiny", group=group, **load) as engine:
        result = engine.generate([{"role": "user", "content": ask}], **generate)
        return result.as_dict()


def answers_together(asks, load, generate):
    with mlxfill.load("tiny", group=group, **load) as engine:
        asked = [{"messages": [{"role": "user", "content": ask}], **generate} for ask in asks]
        return [result.tokens for result in engine.generate_batch(asked)]


def refused(ask, *args, **options):
    try:
        ask(*args, **options)
    except mlxfill.MlxfillError as error:
        return str(error)


def refusal(load, **options):
    def generate():
        with mlxfill.load(load, plugins=[], group=group) as engine:
            engine.generate(f"rank {group.rank()}", max_tokens=4, **options)

    return refused(generate)


def source(request):
    if group.rank():
        raise OSError("a file that is not on this machine")
    return ScriptedSource(request=request, script=Script([], 1.0), chance=0.0)


def unlike():
    model = tiny_model("llama")
    model.shard(group)
    with engine_with(model, Guest(sources=[source]), group=group) as engine:
        return [
            refused(engine.generate, [5, 6, 7], max_tokens=4),
            refused(engine.generate_batch, [], max_rows=2 + group.rank()),
        ]


print(json.dumps({
    "rank": group.rank(),
    "answers": {name: answer(ask, **case) for name, case in cases.items()},
    "rows": answers_together([ask, "Count to five."], **cases["lookup"]),
    "processed": answer(ask, {"plugins": []}, {
        "max_tokens": 4, "logits_processors": [lambda tokens, logits: logits],
    })["tokens"],
    "unlike": refusal("tiny"),
    "within": unlike(),
    "cancel": refusal("tiny", cancel=__import__("threading").Event()),
    "unfit": [refusal(folder) for folder in unfit],
}) + "\\n")
"""
UNGATED = {"gate": {"enabled": False}}
CASES: dict[str, dict[str, Any]] = {
    "lookup": {
        "load": {"plugins": ["fill-echo", "spec-ngram"], "config": UNGATED},
        "generate": {"max_tokens": 12},
    },
    "head": {
        "load": {"draft": "tiny-mtp", "config": UNGATED},
        "generate": {"max_tokens": 12},
    },
    "draft model, gated": {
        "load": {"draft": "tiny-draft", "config": {}},
        "generate": {"max_tokens": 12, "temperature": 0.9},
    },
}


def free_ports() -> int:
    """The first of two neighbouring ports that nobody listens on."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            try:
                two.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def launch(*command: str | Path, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    ring = ["-n", str(ranks), "--backend", "ring", "--starting-port", str(free_ports())]
    return subprocess.run(
        [BIN / "mlx.launch", *ring, "--env", "MLXFILL_CONFIG=", "--", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=AT_ALL,
    )


@pytest.fixture(scope="module")
def single() -> Iterator[mlxfill.Engine]:
    """One process, without any plugin."""
    with mlxfill.load("tiny", plugins=[], config={}) as engine:
        yield engine


def alone(
    single: mlxfill.Engine, generate: dict[str, Any], seed: int = 0, ask: str = ASK
) -> list[int]:
    asked = [{"role": "user", "content": ask}]
    return single.generate(asked, **{**generate, "seed": seed}).tokens


def test_the_command_line_answers_as_one_process_does_and_once(
    single: mlxfill.Engine,
) -> None:
    arguments = ["--model", "tiny", "--max-tokens", "12", "--json", ASK]
    done = launch(BIN / "mlxfill", "generate", *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tokens"] == alone(single, {"max_tokens": 12})


def test_ranks_decide_alike_whatever_proposes_and_refuse_alike(
    single: mlxfill.Engine, tmp_path: Path
) -> None:
    heads = {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 32}
    three = tiny_folder(tmp_path / "three", "qwen3", **heads)
    gpt2 = tiny_folder(tmp_path / "gpt2", "gpt2")
    done = launch(sys.executable, "-c", SCRIPT, ASK, json.dumps(CASES), three, gpt2)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line]
    assert sorted(each["rank"] for each in told) == [0, 1]
    for name, case in CASES.items():
        one, two = (each["answers"][name] for each in told)
        seed = one["stats"]["seed"]
        assert one["tokens"] == two["tokens"] == alone(single, case["generate"], seed), name
        assert one["faults"] == two["faults"] == []
        for count in ("windows", "drafted", "accepted", "steps"):
            assert one["stats"]["spec"][count] == two["stats"]["spec"][count], name
        assert name != "head" or one["stats"]["spec"]["accepted"]
    one, two = (each["rows"] for each in told)
    asks = [ASK, "Count to five."]
    assert one == two == [alone(single, CASES["lookup"]["generate"], ask=ask) for ask in asks]
    for each in told:
        assert each["processed"] == alone(single, {"max_tokens": 4})
        plugins, requests = each["within"]
        assert "1 of 2 ranks have another set of plugins at work" in plugins
        assert "1 of 2 ranks have another number of requests, or max_rows" in requests
        assert "1 of 2 ranks have another request than rank 0" in each["unlike"]
        assert "cancel cannot reach 2 ranks" in each["cancel"]
        odd, unknown = each["unfit"]
        assert f"{three} cannot be split over 2 ranks" in odd
        assert "mlx-lm cannot split a gpt2 model over 2 ranks" in unknown


FAILING = """
import mlx.core as mx
from mlxfill_testing import Guest, Script, ScriptedSource, engine_with, tiny_model

group = mx.distributed.init()
model = tiny_model("llama")
model.shard(group)


class Source(ScriptedSource):
    def propose(self, view):
        if group.rank() and view.length > 8:
            raise OSError("a file that is not on this machine")
        return super().propose(view)


def source(request):
    return Source(request=request, script=Script([], 1.0))


with engine_with(model, Guest(sources=[source]), group=group) as engine:
    engine.generate([5, 6, 7], max_tokens=20, eos_token_ids=())
"""


def test_ranks_do_not_wait_for_one_on_which_a_source_fails() -> None:
    done = launch(sys.executable, "-c", FAILING)
    assert "plugin 'guest' failed in propose: OSError: a file that is not on this" in done.stderr
    assert "ranks that share a model cannot leave it out" in done.stderr


def test_a_group_that_cannot_be_joined_is_one_line() -> None:
    done = launch(BIN / "mlxfill", "generate", "--model", "tiny", "Hi.", ranks=1)
    assert "error: the group that this process was started in cannot be joined" in done.stderr
    assert "--debug" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--model", "{gpt2}"], "mlx-lm cannot split a gpt2 model over 2 ranks"),
        (["--modle", "tiny"], "No such option: --modle"),
    ],
)
def test_what_all_ranks_refuse_is_said_once(
    arguments: list[str], complaint: str, tmp_path: Path
) -> None:
    gpt2 = tiny_folder(tmp_path / "gpt2", "gpt2")
    named = [argument.format(gpt2=gpt2) for argument in arguments]
    done = launch(BIN / "mlxfill", "generate", *named, "Hi.")
    assert done.stderr.count("error") == 1
    assert f"error: {complaint}" in done.stderr
    assert done.stderr.count("loading ") == named.count("--model")


def test_a_group_of_one_is_no_group(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "gpt2", "gpt2")
    options: dict[str, Any] = {"plugins": [], "config": {}}
    with mlxfill.load(folder, **options, group=mx.distributed.init()) as engine:
        tokens = engine.generate([5, 6], max_tokens=4, temperature=1.0, seed=3).tokens
    with mlxfill.load(folder, **options) as engine:
        assert engine.generate([5, 6], max_tokens=4, temperature=1.0, seed=3).tokens == tokens
