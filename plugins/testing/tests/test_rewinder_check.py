"""The check of rewinders finds what is planted: in the kit's models and in one of one's own."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from mlx_lm.models.cache import KVCache

from diaries import Diary, DiaryRewinder, diary_model
from mlxfill.rewind.entries import builtin_rewinder
from mlxfill_testing import ConformanceError, check_rewinder, tiny_model


def core(entry: object, layer: Any, _target: Any) -> Any:
    """The core's own, as if a plugin brought them."""
    return builtin_rewinder(entry, layer)


def made(kind: Any) -> Any:
    return lambda entry, layer, _: kind(entry, layer) if isinstance(entry, Diary) else None


def planted(**body: Any) -> Any:
    return made(type("Planted", (DiaryRewinder,), body))


def test_the_cores_own_rewinders_pass() -> None:
    found = check_rewinder(core, examples=20)
    assert found.offers > 20


def test_a_rewinder_of_an_unknown_entry_passes() -> None:
    found = check_rewinder(made(DiaryRewinder), model=diary_model())
    assert found.offers > 20


def test_entries_that_are_left_to_the_core_are_the_cores() -> None:
    model = tiny_model("llama")
    model.make_cache = lambda: [
        *(KVCache() for _ in model.layers[1:]),
        Diary(),
    ]
    assert check_rewinder(made(DiaryRewinder), model=model, examples=8).offers > 5


def test_an_entry_that_nobody_takes_is_named() -> None:
    class Sealed(KVCache):
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.lock = object()  # nothing that could be copied back

        def is_trimmable(self) -> bool:
            return False

    model = tiny_model("llama")
    model.make_cache = lambda: [Sealed(), *(Diary() for _ in model.layers[1:])]
    with pytest.raises(ConformanceError, match="takes no Sealed, and neither does the core"):
        check_rewinder(made(DiaryRewinder), model=model, examples=2)


def raising(*_: Any) -> Any:
    raise OSError("gone")


class Twice(DiaryRewinder):
    """Right once: what ``begin`` kept the first time is gone back to for ever."""

    kept: Any = None

    def begin(self) -> None:
        self.kept = self.kept or copy.copy(self.entry)

    def rewind(self, keep: int) -> None:
        self.entry.offset = self.kept.offset + keep


FAULTS: dict[str, tuple[Any, str]] = {
    "none": (lambda *_: None, "the factory takes none of its entries: hand over the model"),
    "a number": (lambda *_: 7, r"for a Diary the factory answered 7, which has no begin\(\)"),
    "needs nobody knows what": (
        planted(needs_replay=None),
        "for a Diary the factory answered a rewinder of needs_replay None, not bool",
    ),
    "replays untaped": (
        planted(needs_replay=False, rewind=lambda self, keep: self.layer.replay(keep)),
        r"raised ModelError: nothing to replay: needs_replay is false, .* in rewind\(\d\)",
    ),
    "no commit": (planted(commit=None), r"has no commit\(\)"),
    "factory raises": (raising, "for a Diary the factory raised OSError: gone"),
    "begin raises": (planted(begin=raising), r"the rewinder raised OSError: gone in begin\(\)"),
    "commit raises": (planted(commit=raising), r"stay the rewinder raised OSError: gone in comm"),
    "rewind raises": (planted(rewind=raising), r"raised OSError: gone in rewind\(\d\)"),
    "does nothing": (
        planted(rewind=lambda *_: None),
        (
            r"^spec-foo: after 1 tokens, a window of 2 ids of which \d stay the rewinder left Diary"
            " number 0 with other keys and offset and values than a cache that never saw the"
            " refused ids$"
        ),
    ),
    "one too many": (
        planted(rewind=lambda self, keep: DiaryRewinder.rewind(self, keep - 1)),
        "left Diary number 0 with other",
    ),
    "all of it": (planted(rewind=lambda self, _: DiaryRewinder.rewind(self, 0)), "left Diary"),
    "right once": (made(Twice), "a window of .*, a window of .* left Diary number 0"),
    "spoils a kept one": (
        planted(commit=lambda self: DiaryRewinder.rewind(self, 0)),
        "left Diary number 0",
    ),
}


@pytest.mark.parametrize(("factory", "pattern"), FAULTS.values(), ids=list(FAULTS))
def test_a_planted_fault_is_found_and_named(factory: Any, pattern: str) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_rewinder(factory, name="spec-foo", model=diary_model())
    message = str(caught.value)
    assert message.startswith("spec-foo: ")
    assert "\n" not in message
    assert re.search(pattern, message), message
