"""Measure what a long session costs on the host: each source, and the start of a request.

    python benchmarks/long_session.py [--longest TOKENS]

Prompts and tokens of the first table are those of ``lookup.py``: half of the ids are copied, the
tokens that follow are copied as well.  The second table asks a model of one layer, so that nothing
but the host's own work takes time: "read" applies the chat template and the tokenizer, which every
program must; "opened" is all that mlxfill does before the model computes, "closed" what it does
after the last token.  All times are those of the processor.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attrs import frozen

from lookup import Words
from mlxfill import Engine, load
from mlxfill_fill_echo import EchoSettings, EchoSource, Memory
from mlxfill_spec_ngram import NgramSettings, NgramSource, make_lookup
from mlxfill_testing import tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlxfill import ProposalSource

LENGTHS = (1_000, 10_000, 100_000, 300_000)
STEPS, BUILDS, TOKENS = 4_000, 3, 4
SYSTEM_WORDS, TURN_WORDS = 500, 40
PLUGINS: tuple[tuple[str, ...], ...] = ((), ("fill-echo", "spec-ngram"))
T = TypeVar("T")
_NO_VIEW = cast("Any", None)  # the sources observe everything and look at no view


# --- sources ------------------------------------------------------------------------------


def echo(prompt: Sequence[int]) -> ProposalSource:
    """Make the source of a first request with this prompt."""
    settings = EchoSettings()
    memory = Memory(settings)
    memory.begin(prompt)
    return EchoSource(memory, settings, frozenset())


def ngram(prompt: Sequence[int]) -> ProposalSource:
    """Make the source of a request with this prompt."""
    lookup = make_lookup(NgramSettings())
    lookup.seed(prompt)
    return NgramSource(lookup)


@frozen
class SourceCost:
    """Milliseconds to make a source, microseconds a token, bytes an id of the session."""

    start: float
    observe: float
    propose: float
    bytes_an_id: float


def source_cost(make: Callable[[Sequence[int]], ProposalSource], length: int) -> SourceCost:
    """Costs of a source with a session of ``length`` tokens."""
    words = Words()
    prompt = tuple(words.with_copies(length))
    reply = prompt[length // 2 :][:STEPS]
    start = min(timed(partial(make, prompt))[0] for _ in range(BUILDS))
    both, _ = timed(partial(read_on, make(prompt), reply, proposing=True))
    alone, _ = timed(partial(read_on, make(prompt), reply, proposing=False))
    micro = 1e3 / len(reply)
    return SourceCost(start, alone * micro, (both - alone) * micro, held(make, prompt) / length)


def read_on(source: ProposalSource, reply: Sequence[int], *, proposing: bool) -> None:
    """Observe a reply token by token, with a proposal after each or with none."""
    for token in reply:
        source.observe((token,))
        if proposing:
            source.propose(_NO_VIEW)


def held(make: Callable[[Sequence[int]], ProposalSource], prompt: Sequence[int]) -> int:
    """Bytes that a source holds beside the prompt."""
    tracemalloc.start()
    source = make(prompt)
    gc.collect()
    bytes_, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del source
    return bytes_


# --- requests -----------------------------------------------------------------------------


@frozen
class TurnCost:
    """Milliseconds of the stages of a turn whose prompt has ``tokens``, of which few are new."""

    tokens: float
    read: float
    opened: float
    closed: float


def turn_cost(engine: Engine, messages: list[dict[str, str]]) -> TurnCost:
    """Medians over further turns of a session, the first one left out."""
    words = Words()
    turns: list[TurnCost] = []
    for _ in range(BUILDS + 1):
        turns.append(one_turn(engine, messages))
        said = {"role": "assistant", "content": text(words, TURN_WORDS)}
        messages = [*messages, said, {"role": "user", "content": text(words, TURN_WORDS)}]
    costs = [(t.tokens, t.read, t.opened, t.closed) for t in turns[1:]]
    return TurnCost(*(statistics.median(column) for column in zip(*costs, strict=True)))


def one_turn(engine: Engine, messages: list[dict[str, str]]) -> TurnCost:
    """Ask, and take a few tokens."""
    asked: dict[str, Any] = {"session": "s", "max_tokens": TOKENS, "eos_token_ids": ()}
    read, prompt = timed(partial(engine.check, messages, **asked))
    opened, run = timed(partial(engine.stream, prompt, **asked))
    for _ in range(TOKENS):
        next(run)
    closed, result = timed(run.result)
    return TurnCost(result.stats.prompt_tokens, read, opened, closed)


def conversation(tokenizer: Any, tokens: int) -> list[dict[str, str]]:  # noqa: ANN401
    """Messages of about so many tokens."""
    words = Words()
    messages = [{"role": "system", "content": text(words, SYSTEM_WORDS)}]
    size = len(tokenizer.encode(messages[0]["content"]))
    while size < tokens:
        for role in ("user", "assistant"):
            messages.append({"role": role, "content": text(words, TURN_WORDS)})
            size += len(tokenizer.encode(messages[-1]["content"]))
    return [*messages, {"role": "user", "content": "And now?"}]


def text(words: Words, count: int) -> str:
    """So many words, as unlike as the ids that they stand for."""
    return " ".join(f"w{word:x}" for word in words.new(count))


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """Milliseconds that this process computes, and the answer."""
    gc.collect()
    begin = time.process_time()
    answer = call()
    return (time.process_time() - begin) * 1e3, answer


# --- tables -------------------------------------------------------------------------------


def print_sources(lengths: Sequence[int]) -> None:
    """A row for each source and length."""
    print("| session | source | start ms | observe us | propose us | bytes an id |")
    print("|--:|---|--:|--:|--:|--:|")
    for length in lengths:
        for name, make in (("fill-echo", echo), ("spec-ngram", ngram)):
            cost = source_cost(make, length)
            print(
                f"| {length:,} | {name} | {cost.start:.1f} | {cost.observe:.2f} |"
                f" {cost.propose:.2f} | {cost.bytes_an_id:.0f} |"
            )


def print_requests(lengths: Sequence[int]) -> None:
    """A row for each length and set of plugins."""
    with load("tiny", plugins=["model-tiny"]) as tiny:
        tokenizer = tiny.tokenizer
    size = {"hidden_size": 16, "head_dim": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    model = tiny_model("llama", vocab_size=len(tokenizer), **size, **heads)
    print("| prompt | plugins | read ms | opened ms | closed ms |")
    print("|--:|---|--:|--:|--:|")
    for length in lengths:
        messages = conversation(tokenizer, length)
        for plugins in PLUGINS:
            with Engine(model, tokenizer, plugins=plugins) as engine:
                cost = turn_cost(engine, messages)
            print(
                f"| {cost.tokens:,.0f} | {', '.join(plugins) or 'none'} | {cost.read:.1f} |"
                f" {cost.opened:.1f} | {cost.closed:.1f} |"
            )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    longest = parser.parse_args().longest
    lengths = [length for length in LENGTHS if length <= longest]
    print_sources(lengths)
    print()
    print_requests(lengths)


if __name__ == "__main__":
    main()
