"""What a thread puts in comes out in a coroutine: all of it, in order, soon."""

from __future__ import annotations

import asyncio
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfill_serve.mailbox import Mailbox

bursts = st.lists(st.integers(0, 5), max_size=30)


@settings(max_examples=30)
@given(bursts)
def test_everything_comes_out_in_order(sizes: list[int]) -> None:
    count = sum(sizes)

    async def read() -> list[int]:
        mailbox: Mailbox[int] = Mailbox()

        def fill() -> None:
            numbers = iter(range(count))
            for size in sizes:
                for _ in range(size):
                    mailbox.put(next(numbers))

        thread = threading.Thread(target=fill)
        thread.start()
        taken: list[int] = []
        while len(taken) < count:
            burst = await mailbox.take(60)
            assert burst  # silence is told when it lasted, not when the loop was woken in vain
            taken += burst
        thread.join()
        return taken

    assert asyncio.run(read()) == list(range(count))


def test_silence_is_told() -> None:
    async def listen() -> tuple[list[int], list[int]]:
        mailbox: Mailbox[int] = Mailbox()
        nothing = await mailbox.take(0.01)
        mailbox.put(3)
        return nothing, await mailbox.take(60)

    assert asyncio.run(listen()) == ([], [3])


def test_what_nobody_can_read_any_more_is_dropped() -> None:
    async def make() -> Mailbox[int]:
        return Mailbox()

    mailbox = asyncio.run(make())
    mailbox.put(1)
    mailbox.put(2)
