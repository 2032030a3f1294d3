"""What a soak does with an open engine: one reply, a conversation, rows, checkpoints, mistakes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlxfill import MlxfillError, RowScheduler
from soak_draws import ILLEGAL, Asked
from soak_judge import MismatchError, World, compare

if TYPE_CHECKING:
    from random import Random

    from mlxfill import Checkpoint, Engine, PromptCache, Result, Run


@dataclass
class Tally:
    """What was asked so far, and where the tokens came from."""

    requests: int = 0
    acts: Counter[str] = field(default_factory=Counter)
    origins: Counter[str] = field(default_factory=Counter)
    forwards: int = 0

    def add(self, result: Result) -> None:
        """Count a reply."""
        self.requests += 1
        self.origins.update(result.origins)
        self.forwards += result.stats.target_forwards


@dataclass
class Scene:
    """An open engine.  ``draw_request`` draws what it is asked; ``loose`` as in ``compare``."""

    world: World
    model: str
    engine: Engine
    draw: Random
    draw_request: Callable[[], Asked]
    tally: Tally
    loose: bool = False

    def check(self, asked: Asked, result: Result) -> None:
        """Count and compare."""
        self.tally.add(result)
        compare(self.world, self.model, asked, result, loose=self.loose)

    def open(self, asked: Asked, **more: Any) -> Run:  # noqa: ANN401 - options
        """A run of the engine."""
        return self.engine.stream(**asked.keywords(**more))


def one_reply(scene: Scene) -> None:
    """Asked and waited for."""
    asked = scene.draw_request()
    scene.check(asked, scene.open(asked).result())


def left_early(scene: Scene) -> None:
    """The reader goes away in the middle, by closing, dropping, forgetting, or cancelling."""
    asked, event = scene.draw_request(), threading.Event()
    run = scene.open(asked, cancel=event)
    ways = ["close", "cancel", "drop", "forget"]
    patience, how = scene.draw.randint(0, 20), scene.draw.choice(ways)
    for number, _ in enumerate(run):
        if number >= patience:
            if how == "cancel":
                event.set()
            else:
                break
    if how in {"drop", "forget"}:
        scene.tally.requests += 1
        circle: list[object] = [run]
        if how == "forget":  # then Python collects it whenever it comes to that
            circle.append(circle)
        del run, circle
        return
    if how == "close":
        run.close()
    scene.check(asked, run.result())


def conversation(scene: Scene) -> None:
    """Turns of a session, whose prompts begin alike."""
    asked = scene.draw_request()
    session = f"session {scene.draw.randrange(4)}"
    for number in range(3):
        result = scene.open(asked, session=session).result()
        scene.check(asked, result)
        prompt: Any = asked.prompt
        if isinstance(prompt, str):
            prompt += result.text + " And then? "
        elif isinstance(prompt[0], dict):
            said = {"role": "assistant", "content": result.text}
            more = {"role": "user", "content": f"And then, after {number}?"}
            prompt = [*prompt, said, more]
        else:
            prompt = [*prompt, *result.tokens, prompt[0]]
        asked = Asked(prompt, asked.tools, asked.options, asked.exact)


def batch(scene: Scene) -> None:
    """Several at once."""
    asked = [scene.draw_request() for _ in range(scene.draw.randint(2, 5))]
    rows = scene.draw.randint(1, 5)
    results = scene.engine.generate_batch((each.keywords() for each in asked), max_rows=rows)
    for each, result in zip(asked, results, strict=True):
        scene.check(each, result)


def coming_and_going(scene: Scene) -> None:
    """Rows that join, leave, are cancelled, and one whose caller's function fails."""
    rows = RowScheduler(scene.engine, max_rows=scene.draw.randint(1, 4))
    coming = [scene.draw_request() for _ in range(scene.draw.randint(3, 7))]
    fates = [scene.draw.choice(["stays", "stays", "drop", "cancel", "fails"]) for _ in coming]
    events = [threading.Event() for _ in coming]
    patience = [scene.draw.randint(0, 15) for _ in coming]
    runs: list[Run] = []
    while len(runs) < len(coming) or len(rows):
        if len(runs) < len(coming) and (not len(rows) or scene.draw.random() < 0.4):  # noqa: PLR2004
            at = len(runs)
            failing = {"logits_processors": [_failing(patience[at])]}
            more = failing if fates[at] == "fails" else {}
            runs.append(scene.open(coming[at], cancel=events[at], **more))
            rows.add(runs[-1])
        rows.round()
        for at, run in enumerate(runs):
            if run.stats.generated_tokens >= patience[at]:
                if fates[at] == "drop":
                    rows.drop(run)
                elif fates[at] == "cancel":
                    events[at].set()
    rows.close()
    for asked, fate, run in zip(coming, fates, runs, strict=True):
        _settle(scene, asked, fate, run)


def _settle(scene: Scene, asked: Asked, fate: str, run: Run) -> None:
    if fate != "fails":
        scene.check(asked, run.result())
        return
    scene.tally.requests += 1
    try:
        run.result()
    except _PlannedError:
        return
    # It was over before its function failed.


class _PlannedError(Exception):
    """What a caller's own function raises."""


def _failing(after: int) -> Callable[[Any, Any], Any]:
    calls = 0

    def process(_: Any, logits: Any) -> Any:  # noqa: ANN401
        nonlocal calls
        calls += 1
        if calls > after:
            raise _PlannedError
        return logits

    return process


def stored(scene: Scene) -> None:
    """Left in the middle, gone on with from its checkpoint, in memory or in a file."""
    asked = scene.draw_request()
    every, path = scene.draw.choice([1, 5, 16]), scene.world.folder / "run.safetensors"
    in_file, left = scene.draw.random() < 0.5, []  # noqa: PLR2004

    def keep(checkpoint: Checkpoint) -> None:
        left.append(checkpoint)
        del left[:-2]

    where: dict[str, Any] = {"checkpoint": path} if in_file else {"on_checkpoint": keep}
    run = scene.open(asked, checkpoint_every=every, **where)
    patience = scene.draw.choice([3, 10, 30, 1000])
    for number, _ in enumerate(run):
        if number >= patience:
            break
    run.close()
    source: Any = path if in_file else (left[0] if left else None)
    if source is None or (in_file and not path.exists()):
        scene.tally.requests += 1
        return
    given = {n: asked.options[n] for n in ("logits_processors",) if n in asked.options}
    try:
        scene.check(asked, scene.engine.resume(source, **given).result())
    except MlxfillError as error:
        if "complete" not in str(error):
            raise
    finally:
        for file in scene.world.folder.glob("run.safetensors*"):
            file.unlink()


def prewarmed(scene: Scene) -> None:
    """A cache of the prompt's beginning is handed out, and handed in again."""
    asked = scene.draw_request()
    got: list[PromptCache] = []
    scene.check(asked, scene.open(asked, on_prefill_done=got.append, keep_cache=True).result())
    if got and not {"kv_bits", "max_kv_size"} & set(asked.options):
        for _ in range(2):
            scene.check(asked, scene.open(asked, cache=got[0]).result())


def mistaken(scene: Scene) -> None:
    """Something illegal: one line, and nothing else has changed."""
    asked, wrong = scene.draw_request(), scene.draw.choice(ILLEGAL)
    try:
        scene.open(asked.changed(**wrong)).close()
    except MlxfillError as error:
        if "\n" in str(error):
            raise MismatchError(f"more than a line: {error}") from error
    else:
        raise MismatchError(f"{wrong} was taken")
    scene.tally.requests += 1


ACTS: dict[str, tuple[Callable[[Scene], None], int]] = {
    "one reply": (one_reply, 6),
    "left early": (left_early, 3),
    "conversation": (conversation, 3),
    "batch": (batch, 3),
    "rows": (coming_and_going, 4),
    "stored": (stored, 3),
    "prewarmed": (prewarmed, 2),
    "mistaken": (mistaken, 2),
}


def play(scene: Scene, count: int, names: Sequence[str] = tuple(ACTS)) -> None:
    """Some acts, one after the other."""
    for name in scene.draw.choices(names, [ACTS[n][1] for n in names], k=count):
        scene.tally.acts[name] += 1
        try:
            ACTS[name][0](scene)
        except Exception as error:
            error.add_note(f"in the act {name!r}")
            raise
