"""A thousand requests through one scheduler: they come, go and end in any order, none is lost."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from mlxfill import RowScheduler
from mlxfill_testing import engine_with, plain, shared_model

if TYPE_CHECKING:
    from mlxfill import Engine
    from mlxfill.decode.run import Run

REQUESTS, ROWS = 1000, 24
ASKED = [([3 + i, 40, 9, 12 + i][: 2 + i % 3], 1 + i % 5) for i in range(10)]
"""Prompt and number of tokens of each kind of request."""


class Crowd:
    """Users: some wait for the reply, some go away in the middle of it or before it begins."""

    def __init__(self, engine: Engine, rows: RowScheduler) -> None:
        self.engine, self.rows = engine, rows
        self.chance = random.Random(7)
        self.kinds: dict[Run, int] = {}
        self.patience: dict[Run, int] = {}
        self.begun: list[Run] = []
        self.said: Counter[Run] = Counter()
        self.ended: Counter[Run] = Counter()
        self.gone: set[Run] = set()

    def arrive(self) -> None:
        """A request of some kind; one in five users will not wait for its end."""
        kind = self.chance.randrange(len(ASKED))
        prompt, count = ASKED[kind]
        run = self.engine.stream(prompt, max_tokens=count, eos_token_ids=())
        self.kinds[run] = kind
        self.patience[run] = self.chance.randrange(4) if self.chance.random() < 0.2 else REQUESTS
        self.rows.add(run)

    def listen(self) -> None:
        """One round; those whose patience ends leave after it."""
        for run, piece in self.rows.round():
            assert run not in self.gone
            assert run not in self.ended
            if not self.said[run]:
                self.begun.append(run)
            self.said[run] += 1
            if piece.finish_reason:
                self.ended[run] += 1
        for run in [*self.kinds]:
            here = run not in self.ended and run not in self.gone
            if here and self.said[run] >= self.patience[run]:
                self.rows.drop(run)
                self.gone.add(run)


def test_a_thousand_requests_are_each_answered_once_and_in_turn() -> None:
    model = shared_model("llama")
    truth = [plain(model, prompt, count).tokens for prompt, count in ASKED]
    with engine_with(model) as engine:
        rows = RowScheduler(engine, max_rows=ROWS)
        crowd = Crowd(engine, rows)
        while len(crowd.kinds) < REQUESTS or len(rows):
            for _ in range(min(crowd.chance.randrange(40), REQUESTS - len(crowd.kinds))):
                crowd.arrive()
            crowd.listen()
            assert rows.active <= ROWS
            assert len(rows) == len(crowd.kinds) - len(crowd.ended) - len(crowd.gone)
        assert rows.active == rows.waiting == 0
        assert set(crowd.ended.values()) == {1}
        assert len(crowd.ended) + len(crowd.gone) == REQUESTS
        assert len(crowd.gone) > REQUESTS // 20
        for run in crowd.ended:
            assert run.result().tokens == truth[crowd.kinds[run]]
        order = {run: place for place, run in enumerate(crowd.kinds)}
        places = [order[run] for run in crowd.begun]
        assert all(place < later + ROWS for place, later in pairwise(places))
