"""The check of drafters finds what is planted in rows, checkpoints and answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import mlx.core as mx
import pytest

from mlxfill import DraftCheckpoint, DrafterError
from mlxfill_testing import ConformanceError, ConformanceWarning, check_draft_provider

KNOWN = "known"


class Rows:
    """Right rows: what followed the pending token the last time."""

    namespace: Any = "right"
    aux_layers: Any = ()
    prefill_mode: Any = "tail-split"
    lists = True

    def __init__(self, checkpoints: Sequence[Any]) -> None:
        self.known: list[list[int]] = []
        self.pending: list[int] = []
        self.append([None] * len(checkpoints), checkpoints)

    @property
    def row_count(self) -> Any:
        return len(self.known)

    def prefill(self, tokens: Any, context: Any = None) -> None:
        self.add(tokens.tolist())
        self.look(context)

    def draft(self, pending: Any, depth: int, positions: Any) -> Any:
        assert list(positions) == [len(row) + 1 for row in self.known]
        self.pending = list(pending)
        return [
            [] if last is None else self.guess(row, last, depth)
            for row, last in zip(self.known, pending, strict=True)
        ]

    def guess(self, row: list[int], last: int, depth: int) -> Any:
        at = next((i for i in range(len(row) - 1, -1, -1) if row[i] == last), len(row))
        return row[at + 1 : at + 1 + depth]

    def commit(self, accepted: Any, context: Any = None) -> None:
        pairs = zip(self.pending, accepted, strict=True)
        self.add([[] if last is None else [last, *entered[:-1]] for last, entered in pairs])
        self.look(context)

    def consume(self, tokens: Any, lengths: Any, context: Any = None) -> None:
        pairs = zip(tokens.tolist(), lengths, strict=True)
        self.add([ids[:length] for ids, length in pairs])
        self.look(context)

    def add(self, entered: list[list[int]]) -> None:
        for row, ids in zip(self.known, entered, strict=True):
            row.extend(ids)

    def look(self, context: Any) -> None:
        """There are no aux layers."""

    def append(self, samplings: Any, checkpoints: Sequence[Any]) -> None:
        assert len(samplings) == len(checkpoints)
        self.known += [self.restored(each) if each else [] for each in checkpoints]

    def restored(self, checkpoint: DraftCheckpoint) -> list[int]:
        ids: Any = checkpoint.tensors.get(KNOWN)
        fits = checkpoint.namespace == self.namespace
        if not fits or ids is None or ids.size != checkpoint.processed_tokens:
            raise DrafterError("foreign")
        return list(ids.tolist())

    def keep(self, rows: Any) -> None:
        self.known = [self.known[at] for at in rows]

    def capture(self, row: int) -> Any:
        ids = mx.array(self.known[row], mx.int32)
        return DraftCheckpoint(self.namespace, ids.size, {KNOWN: ids})

    def close(self) -> None:
        self.known = []


class Provider:
    """A right provider of ``rows``."""

    id: Any = "right"
    weights_bytes: Any = 0
    default_depth: Any = 3
    supports_target_adapters: Any = True
    supports_external_tokens: Any = True
    rows: Any = Rows

    def __init__(self, target: Any) -> None:
        self.target = target

    def open(self, _target: Any, samplings: Any, checkpoints: Any) -> Any:
        assert len(samplings) == len(checkpoints)
        return self.rows(checkpoints)

    def close(self) -> None: ...


def provider(rows: Any = Rows, **body: Any) -> Any:
    return type("Planted", (Provider,), {"rows": rows, **body})


def rows(**body: Any) -> Any:
    return provider(type("PlantedRows", (Rows,), body))


def test_a_right_drafter_passes_and_is_counted() -> None:
    found = check_draft_provider(Provider)
    assert found.name == "right"
    assert found.offers > 10
    assert found.accepted > 10


def test_drafts_may_lie_on_the_device_and_want_aux_states() -> None:
    class WithContext(Rows):
        aux_layers = (0, 1)
        prefill_mode = "full"

        def look(self, context: Any) -> None:
            assert context.shape[0] == self.row_count
            assert context.shape[2] == 128

        def draft(self, pending: Any, depth: int, positions: Any) -> Any:
            super().draft(pending, depth, positions)
            return mx.array([[((last or 0) + i) % 64 for i in range(depth)] for last in pending])

    assert check_draft_provider(provider(WithContext)).offers > 10


def test_a_drafter_that_never_speaks_passes_and_its_author_is_warned() -> None:
    mute = rows(draft=lambda _, pending, *__: [[] for _ in pending])
    with pytest.warns(ConformanceWarning, match="right: nothing was tested: it never drafted"):
        assert check_draft_provider(mute, examples=20).offers == 0


def test_a_drafter_that_serves_no_external_tokens_is_told_of_none() -> None:
    class Own(Rows):
        def consume(self, *_: Any) -> None:
            raise NotImplementedError

    found = check_draft_provider(provider(Own, supports_external_tokens=False))
    assert found.offers > 10


def test_a_drafter_may_learn_from_what_became_of_its_drafts() -> None:
    class Shy(Rows):
        """Drafts one token, and more once drafts have come true."""

        def __init__(self, checkpoints: Sequence[Any]) -> None:
            self.asked: list[int] = []
            super().__init__(checkpoints)

        def draft(self, pending: Any, depth: int, positions: Any) -> Any:
            drafts = super().draft(pending, depth, positions)
            return [ids[: 1 + n // 4] for n, ids in zip(self.asked, drafts, strict=True)]

        def commit(self, accepted: Any, context: Any = None) -> None:
            super().commit(accepted, context)
            self.asked = [n + (len(ids) > 1) for n, ids in zip(self.asked, accepted, strict=True)]

        def append(self, samplings: Any, checkpoints: Sequence[Any]) -> None:
            super().append(samplings, checkpoints)
            self.asked += [int(c.metadata["asked"]) if c else 0 for c in checkpoints]

        def restored(self, checkpoint: DraftCheckpoint) -> list[int]:
            if "asked" not in checkpoint.metadata:
                raise DrafterError("foreign")
            return super().restored(checkpoint)

        def keep(self, rows: Any) -> None:
            super().keep(rows)
            self.asked = [self.asked[at] for at in rows]

        def capture(self, row: int) -> Any:
            made = super().capture(row)
            asked = {"asked": str(self.asked[row])}
            return DraftCheckpoint(self.namespace, made.processed_tokens, made.tensors, asked)

    assert check_draft_provider(provider(Shy)).offers > 10


def raising(error: BaseException) -> Any:
    def method(*_: Any, **__: Any) -> Any:
        raise error

    return method


def answering(answer: Any) -> Any:
    return rows(draft=lambda *_: answer)


class Numpyish(Rows):
    def capture(self, row: int) -> Any:
        return DraftCheckpoint(self.namespace, len(self.known[row]), {KNOWN: self.known[row]})  # type: ignore[dict-item]


class Stale(Rows):
    """Rows that change places keep the pending state of their old ones."""

    def keep(self, rows: Any) -> None:
        self.known = sorted(self.known[at] for at in rows)


class Mixed(Rows):
    """The last row is told what the first one is."""

    def commit(self, accepted: Any, context: Any = None) -> None:
        super().commit([accepted[0] for _ in accepted], context)


class Forgetful(Rows):
    def commit(self, accepted: Any, context: Any = None) -> None:
        super().commit([entered[-1:] for entered in accepted], context)


class Padded(Rows):
    """Padding of shorter rows is taken for tokens."""

    def consume(self, tokens: Any, lengths: Any, context: Any = None) -> None:
        super().consume(tokens, [max(lengths)] * len(lengths), context)


class Amnesic(Rows):
    """A restored row has the right length and the wrong tokens."""

    def restored(self, checkpoint: DraftCheckpoint) -> list[int]:
        return sorted(super().restored(checkpoint))


class Lending(Rows):
    """A checkpoint that goes on changing."""

    def __init__(self, checkpoints: Sequence[Any]) -> None:
        self.lent: list[Any] = []
        super().__init__(checkpoints)

    def capture(self, row: int) -> Any:
        made = super().capture(row)
        self.lent.append(made.tensors[KNOWN])
        return made

    def draft(self, pending: Any, depth: int, positions: Any) -> Any:
        for array in self.lent:
            array[:] = 1
        return super().draft(pending, depth, positions)


class Trusting(Rows):
    def restored(self, checkpoint: DraftCheckpoint) -> list[int]:
        ids: Any = checkpoint.tensors[KNOWN]
        return list(ids.tolist())


class Careless(Trusting):
    def restored(self, checkpoint: DraftCheckpoint) -> list[int]:
        if checkpoint.namespace != self.namespace:
            raise DrafterError("foreign")
        return super().restored(checkpoint)


class Rude(Rows):
    def restored(self, checkpoint: DraftCheckpoint) -> list[int]:
        if checkpoint.namespace != self.namespace:
            raise ValueError("foreign")
        return super().restored(checkpoint)


class Leaving(Rows):
    def restored(self, checkpoint: DraftCheckpoint) -> list[int]:
        if checkpoint.namespace != self.namespace:
            raise SystemExit(3)
        return super().restored(checkpoint)


class Half(Rows):
    """A refusal that leaves a row behind."""

    def append(self, samplings: Any, checkpoints: Sequence[Any]) -> None:
        assert len(samplings) == len(checkpoints)
        for each in checkpoints:
            self.known.append([])
            self.known[-1] = self.restored(each) if each else []


class Scratch(Rows):
    """All rows of a provider share their state."""

    everyone: Any = None

    def guess(self, *_: Any) -> Any:
        Scratch.everyone = (Scratch.everyone or 0) + 1
        return [Scratch.everyone % 64]


class Believing(Rows):
    """Counts right, and guesses from a text of its own, in which its drafts stand."""

    text: list[list[int]]
    one_more = False

    def __init__(self, checkpoints: Sequence[Any]) -> None:
        self.text, self.drafts = [], list[list[int]]()
        super().__init__(checkpoints)

    def add(self, entered: list[list[int]]) -> None:
        super().add(entered)
        for text, ids in zip(self.text, entered, strict=True):
            text.extend(ids)

    def draft(self, pending: Any, depth: int, _positions: Any) -> Any:
        self.pending = list(pending)
        pairs = zip(self.text, pending, strict=True)
        self.drafts = [self.guess(text, last, depth) for text, last in pairs]
        return self.drafts

    def commit(self, accepted: Any, context: Any = None) -> None:
        texts = [list(text) for text in self.text]
        super().commit(accepted, context)
        for at, (drafts, ids) in enumerate(zip(self.drafts, accepted, strict=True)):
            if drafts:
                taken = drafts[: len(ids)] if self.one_more else drafts
                self.text[at] = [*texts[at], self.pending[at], *taken]

    def append(self, samplings: Any, checkpoints: Sequence[Any]) -> None:
        super().append(samplings, checkpoints)
        self.text += [list(c.tensors["text"].tolist()) if c else [] for c in checkpoints]

    def restored(self, checkpoint: DraftCheckpoint) -> list[int]:
        if "text" not in checkpoint.tensors:
            raise DrafterError("foreign")
        return super().restored(checkpoint)

    def keep(self, rows: Any) -> None:
        super().keep(rows)
        self.text = [self.text[at] for at in rows]

    def capture(self, row: int) -> Any:
        made = super().capture(row)
        tensors = {**made.tensors, "text": mx.array(self.text[row], mx.int32)}
        return DraftCheckpoint(self.namespace, made.processed_tokens, tensors)


class BelievingOne(Believing):
    """The first refused draft of a round is taken for what stood in its place."""

    one_more = True


class Deaf(Rows):
    """Counts what others chose, and keeps the first of it only."""

    def consume(self, tokens: Any, lengths: Any, context: Any = None) -> None:
        super().consume(mx.broadcast_to(tokens[:, :1], tokens.shape), lengths, context)


class Common(Rows):
    """One table for all requests: what followed ``order`` tokens, whoever said them."""

    order = 1
    table: ClassVar[dict[tuple[int, ...], int]] = {}

    def add(self, entered: list[list[int]]) -> None:
        super().add(entered)
        for row in self.known:
            for at in range(self.order, len(row)):
                self.table[tuple(row[at - self.order : at])] = row[at]

    def guess(self, row: list[int], last: int, depth: int) -> Any:
        ids = [*row, last]
        while len(ids) < len(row) + 1 + depth and tuple(ids[-self.order :]) in self.table:
            ids.append(self.table[tuple(ids[-self.order :])])
        return ids[len(row) + 1 :]


class CommonPhrases(Common):
    order, table = 4, {}


FAULTS: dict[str, tuple[Any, str]] = {
    "no id": (provider(id=None), "has id None, not str"),
    "empty id": (provider(id=""), "has an empty id"),
    "negative weight": (provider(weights_bytes=-1), "has weights_bytes -1, at least 0 is due"),
    "no depth": (provider(default_depth=0), "has default_depth 0, at least 1 is due"),
    "depth in words": (provider(default_depth="3"), "has default_depth '3', not int"),
    "flags": (provider(supports_external_tokens=1), "has supports_external_tokens 1, not bool"),
    "no close": (provider(close=None), r"has no method close\(\)"),
    "open raises": (provider(open=raising(OSError("x"))), "raised OSError: x in making"),
    "no capture": (rows(capture=None), r"opens rows without a method capture\(\)"),
    "no namespace": (rows(namespace=""), "captured under the namespace ''"),
    "prefill mode": (rows(prefill_mode="half"), "opens rows of prefill_mode 'half'"),
    "layers": (rows(aux_layers=(4,)), r"aux_layers \(4,\), not a tuple of layers 0 to 3"),
    "row count": (rows(row_count=2), "opens 2 rows for one checkpoint"),
    "row count in words": (rows(row_count=True), "opens True rows for one checkpoint"),
    "beyond": (
        answering([[64]]),
        r"with the prompts \[\[0\]\], the drafter drafted id 64, outside",
    ),
    "negative": (answering([[-1]]), "drafted id -1, outside the vocabulary of 64"),
    "floats": (answering([[1.0]]), "drafted 1.0 in row 0, not an int"),
    "too many": (answering([[1] * 9]), "drafted 9 ids in row 0 when asked for"),
    "flat": (answering([1]), "drafted 1 for a row, not a list of ids"),
    "none": (answering(None), "drafted None for 1 rows"),
    "one row too many": (answering([[1], [2]]), r"drafted \[\[1\], \[2\]\] for 1 rows"),
    "array": (answering(mx.array([1, 2])), r"drafted an array of shape \(2,\) for 1 rows"),
    "float array": (answering(mx.array([[1.0]])), "drafted an array of .*float32, not of ids"),
    "draft raises": (rows(draft=raising(SystemExit(2))), r"raised SystemExit: 2 in draft\(\)"),
    "commit raises": (rows(commit=raising(KeyError("k"))), r"raised KeyError: 'k' in commit\(\)"),
    "consume raises": (rows(consume=raising(IndexError())), r"raised IndexError in consume\(\)"),
    "keep raises": (rows(keep=raising(NotImplementedError())), r"raised NotImpl.* in keep\(\)"),
    "capture raises": (rows(capture=raising(TypeError("t"))), r"raised TypeError: t in capture"),
    "lists": (provider(Numpyish), r"captured the tensor 'known' as \[.*\], not as an mx.array"),
    "places": (provider(Stale), r"rows \[.*\] kept, .*(drafted|captured|raised)"),
    "mixed": (provider(Mixed), r"that kept \[\d, .*the drafter (drafted|captured|raised Ass)"),
    "forgetful": (
        provider(Forgetful),
        r"that kept \[\d.*(captured processed_tokens \d .*\(row \d of \d\)|raised Assert)",
    ),
    "padding": (provider(Padded), "tokens that others chose, .*(drafted|captured|raised)"),
    "amnesia": (provider(Amnesic), r"restored from their checkpoints|joining with the prompt"),
    "lending": (provider(Lending), r"changed a checkpoint after capture\(\)"),
    "any namespace": (provider(Trusting), "restored a checkpoint of another namespace: raise Dr"),
    "any length": (provider(Careless), "restored a checkpoint that claims 2 processed tokens"),
    "another error": (provider(Rude), "namespace with ValueError: foreign: raise DrafterError"),
    "an exit": (provider(Leaving), "namespace with SystemExit: 3: raise DrafterError"),
    "the end raises": (provider(close=raising(OSError("x"))), r"OSError: x in close\(\) of the"),
    "half refused": (provider(Half), "has 2 rows after it refused a checkpoint, not 1"),
    "believes": (provider(Believing), r"as if \d+ stood behind it: drafts that were refused must"),
    "believes one": (provider(BelievingOne), "drafts that were refused must leave no trace"),
    "deaf": (provider(Deaf), r"the prompt: those that others chose must enter by consume\(\)"),
    "one table": (provider(Common), "offers to one request what another one said: after"),
    "one table of phrases": (provider(CommonPhrases), "offers to one request what another one"),
    "shared": (
        provider(Scratch),
        r"drafted \[\d+\] in row 0 of 1, and \[\d+\] for the same row alone",
    ),
}


@pytest.mark.parametrize(("factory", "pattern"), FAULTS.values(), ids=list(FAULTS))
def test_a_planted_fault_is_found_and_named(factory: Any, pattern: str) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_draft_provider(factory, name="spec-foo")
    message = str(caught.value)
    assert message.startswith("spec-foo: ")
    assert "\n" not in message
    assert re.search(pattern, message), message
