"""Contestants that draft, and the models that they draft with.

An arm decodes all turns one after the other; their ids stand side by side in its run and the
times are summed.
"""

from __future__ import annotations

import json
import shutil
import time
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

import mlxfill
from arms import PrefillClock, Run, timed
from cache_folder import DEFAULT_CACHE, cache_folder
from peers import Dspark, ensure_dspark, ensure_mtplx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arms import Arm

MODELS = Path(str(resources.files("mlxfill_model_tiny"))) / "models"
TINY, DRAFT, HEAD = MODELS / "target", MODELS / "draft", MODELS / "mtp"
BLOCK = MODELS / "dflash"
FREE = {"gate": {"enabled": False}}
VLM_WORKER = Path(__file__).with_name("vlm_worker.py")
MTPLX_WORKER = Path(__file__).with_name("mtplx_worker.py")
NOISE = 0.05


class Turns:
    """An arm that answers every turn; the prompt that it is handed is left aside."""

    def __init__(self, arm: Arm, turns: Sequence[Sequence[int]]) -> None:
        self.name, self._arm, self._turns = arm.name, arm, turns

    def run(self, prompt: Sequence[int], max_tokens: int) -> Run:  # noqa: ARG002
        """Answer all turns, each by at most ``max_tokens`` ids."""
        runs = [self._arm.run(turn, max_tokens) for turn in self._turns]
        clocks = [run.decoding for run in runs if run.decoding is not None]
        return Run(
            tuple(token for run in runs for token in run.ids),
            sum(run.seconds for run in runs),
            sum(run.forwards or 0 for run in runs),
            sum(clocks) if len(clocks) == len(runs) else None,
        )

    def close(self) -> None:
        """Close the arm."""
        self._arm.close()


class DraftingArm:
    """mlxfill with a drafter; without the gate always to its full depth."""

    def __init__(  # noqa: PLR0913 - what distinguishes one
        self,
        name: str,
        target: Path,
        draft: Path,
        plugin: str,
        depth: int,
        *,
        gate: bool,
        temperature: float = 0.0,
    ) -> None:
        self.name, self._temperature = name, temperature
        self.lengths: list[int] = []
        self._engine = mlxfill.load(
            target,
            draft=draft,
            plugins=[plugin],
            num_draft_tokens=depth,
            config={} if gate else FREE,
        )

    def run(self, prompt: Sequence[int], max_tokens: int) -> Run:
        """Decode through the engine; accepted drafts of each round are noted."""
        prefill = PrefillClock()
        stream = self._engine.stream(
            list(prompt),
            max_tokens=max_tokens,
            on_prefill_progress=prefill,
            temperature=self._temperature,
            seed=1,
        )
        run = timed((p.token for p in stream if p.token is not None), (), prefill)
        lengths = stream.stats.spec.get("acceptance_lengths", [])
        self.lengths += lengths
        return Run(run.ids, run.seconds, stream.stats.target_forwards, run.decoding)

    @property
    def tokens_a_round(self) -> float:
        """What a drafted round yields: the accepted drafts and one token more."""
        return 1 + sum(self.lengths) / max(len(self.lengths), 1)

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()


class SpeculativeArm:
    """mlx-lm's own loop for a draft model, which tells no prefill.

    Its first token comes at the end of a round together with that round's others.  They would
    cost nothing on a clock that starts with the first token, so its clock starts with the last
    token of that round, and the time is scaled to all tokens.
    """

    name = "mlx-lm speculative"

    def __init__(self, target: Path, draft: Path, depth: int, temperature: float = 0.0) -> None:
        import mlx_lm
        from mlx_lm.sample_utils import make_sampler

        self._sampler = make_sampler(temperature)
        self._target, self._tokenizer = mlx_lm.load(str(target))[:2]
        self._draft, self._depth = mlx_lm.load(str(draft))[0], depth

    def run(self, prompt: Sequence[int], max_tokens: int) -> Run:
        """Decode with drafts through ``stream_generate``, which detokenizes as ours does."""
        import mlx_lm

        responses = mlx_lm.stream_generate(
            self._target,
            self._tokenizer,
            list(prompt),
            max_tokens=max_tokens,
            draft_model=self._draft,
            num_draft_tokens=self._depth,
            sampler=self._sampler,
        )
        ids: list[int] = []
        begun, start, last = 0, 0.0, 0.0
        for response in responses:
            last = time.perf_counter()
            if response.token in self._tokenizer.eos_token_ids:
                break
            ids.append(response.token)
            if not begun and not response.from_draft:
                begun, start = len(ids), last
        share = (len(ids) - 1) / max(len(ids) - begun, 1)
        return Run(tuple(ids), (last - start) * share)

    def close(self) -> None:
        """Drop the models."""
        del self._target, self._draft


class VlmArm:
    """mlx-vlm with the same head or block drafter, in its own process."""

    def __init__(self, target: Path, head: Path, kind: str = "mtp") -> None:
        self.name, self._kind = f"mlx-vlm {kind}", kind
        self._process = Dspark(ensure_dspark(), target, head, worker=VLM_WORKER)

    def run(self, prompt: Sequence[int], max_tokens: int) -> Run:
        """Ask the process."""
        answer = self._process.ask(self._kind, prompt, max_tokens)
        return Run(tuple(answer["ids"]), answer["seconds"], answer["forwards"])

    def close(self) -> None:
        """End the process."""
        self._process.close()


class MtplxArm:
    """mtplx with the same head and as many drafts, in its own process."""

    name = "mtplx"

    def __init__(self, target: Path, head: Path, depth: int) -> None:
        folder = joined(target, head)
        self._process = Dspark(ensure_mtplx(), folder, str(depth), worker=MTPLX_WORKER)

    def run(self, prompt: Sequence[int], max_tokens: int) -> Run:
        """Ask the process."""
        answer = self._process.ask("mtp", prompt, max_tokens)
        return Run(tuple(answer["ids"]), answer["seconds"], answer["forwards"])

    def close(self) -> None:
        """End the process."""
        self._process.close()


# --- models made from the tiny ones ------------------------------------------------------------


def remade(name: str, source: Path, change: str) -> Path:
    """A copy of a tiny model in the cache folder: ``shaken``, ``random`` or ``bf16`` weights."""
    folder = cache_folder(DEFAULT_CACHE) / name
    if (folder / "model.safetensors").is_file():
        return folder
    shutil.copytree(source, folder, dirs_exist_ok=True)
    weights: Any = mx.load(str(source / "model.safetensors"))
    mx.random.seed(1)
    changed = {key: altered(array, change) for key, array in weights.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), changed, metadata={"format": "mlx"})
    return folder


def joined(target: Path, head: Path) -> Path:
    """Target and head in one folder, as raw releases have them and mtplx reads them."""
    folder = cache_folder(DEFAULT_CACHE) / "tiny-with-head"
    if (folder / "mtp.safetensors").is_file():
        return folder
    shutil.copytree(target, folder, dirs_exist_ok=True)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config["text_config"]["mtp_num_hidden_layers"] = 1
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights: Any = mx.load(str(head / "model.safetensors"))
    named = {f"mtp.{key}": array for key, array in weights.items()}
    mx.save_safetensors(str(folder / "mtp.safetensors"), named, metadata={"format": "mlx"})
    return folder


def altered(weight: mx.array, change: str) -> mx.array:
    """One array of a remade model."""
    if change == "bf16":
        return weight.astype(mx.bfloat16)
    noise = mx.std(weight) * mx.random.normal(weight.shape)
    return weight + NOISE * noise if change == "shaken" else noise


# --- turns ----------------------------------------------------------------------------------


def turns(count: int) -> list[list[int]]:
    """Prompts that end where the tiny model must make a tool call that it never saw."""
    from mlx_lm.tokenizer_utils import load

    from mlxfill_model_tiny import held_out_asks

    tokenizer = load(TINY)
    return [
        list(
            tokenizer.apply_chat_template(ask.messages, tools=ask.tools, add_generation_prompt=True)
        )
        for ask in held_out_asks(count)
    ]


def reads_a_round(turn: Sequence[int], draft: Path, plugin: str) -> float:
    """Reads from the device for each round of a drafter, counted where the engine reads."""
    forward: Any = import_module("mlxfill.forward.runner")
    counted = {"reads": 0}
    read = forward.ids_of

    def counting(array: mx.array) -> list[int]:
        counted["reads"] += 1
        return list(read(array))

    forward.ids_of = counting
    try:
        with mlxfill.load(TINY, draft=draft, plugins=[plugin], config=FREE) as engine:
            spec = engine.generate(list(turn), max_tokens=128).stats.spec
    finally:
        forward.ids_of = read
    return counted["reads"] / len(spec["acceptance_lengths"])
