"""Who computes for servers that come and go in one process."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

import mlxfill
from mlxfill_serve import EngineThread, serving


def test_servers_that_follow_each_other_share_a_thread_and_those_at_once_do_not() -> None:
    seen: list[threading.Thread] = []

    def load() -> mlxfill.Engine:
        seen.append(threading.current_thread())
        return mlxfill.load("tiny", plugins=[], config={"gate": {"enabled": False}})

    def fail() -> mlxfill.Engine:
        seen.append(threading.current_thread())
        raise mlxfill.InputError("no such model")

    with serving(load):
        pass
    with pytest.raises(mlxfill.InputError, match="no such model"):
        EngineThread(fail).start()
    with ExitStack() as servers:
        for _ in range(2):
            servers.enter_context(serving(load))
    first, failed, *others = seen
    assert others.count(first) == others.count(failed) == 1
    assert len({first, failed, *others}) == 2


def test_one_that_was_never_started_stops() -> None:
    EngineThread(lambda: mlxfill.load("tiny")).stop()
