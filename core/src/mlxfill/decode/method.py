"""Replies of a generation method, under the limits that hold for every request."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from mlxfill.decode.sequence import Ending
from mlxfill.errors import InputError, MlxfillError, PluginError
from mlxfill.plugins.faults import one_line
from mlxfill.rules import is_whole

if TYPE_CHECKING:
    from collections import abc
    from collections.abc import Generator, Iterator

    from mlxfill.contracts import GenerationMethod, Request
    from mlxfill.decode.sequence import Emitted, Sequence
    from mlxfill.request.options import Options


def check_method(method: GenerationMethod, options: Options, *, held: bool) -> None:
    """Refuse what only generating token by token can give.

    :param held: whether a schema holds the reply.
    :raises InputError: names the option.
    """
    asked = {
        "schema": held,
        "logprobs": options.logprobs,
        "top_logprobs": options.top_logprobs > 0,
        "prompt_logprobs": options.prompt_logprobs is not None,
        "cache": options.cache is not None,
        "prompt_cache": options.prompt_cache is not None,
        "input_embeddings": options.input_embeddings is not None,
        "checkpoint": options.checkpoint is not None,
        "on_checkpoint": options.on_checkpoint is not None,
    }
    for option, given in asked.items():
        if given:
            raise InputError(
                f"{method.name!r} does not generate token by token: leave out {option}"
            )


def run_method(
    method: GenerationMethod, request: Request, sequence: Sequence, vocab_size: int
) -> Generator[Emitted, None, None]:
    """Tokens as the method's forwards bring them, up to the first end; it is left in ``sequence``.

    :raises PluginError: the method raised, or yielded what is no token; names it.  What it raises
        as an error of mlxfill passes through.
    """
    with closing(_forwards(method, request)) as forwards:
        for tokens in forwards:
            sequence.forwarder.forwards += 1
            yield from _entered(method, _listed(method, tokens), sequence, vocab_size)
            if sequence.ending is None and sequence.cancelled():
                sequence.ending = Ending("cancelled")
            if sequence.ending is not None:
                return
        sequence.ending = Ending("stop")


def _forwards(
    method: GenerationMethod, request: Request
) -> Generator[Iterable[object], None, None]:
    """What the method yields, with its own errors under its name."""
    try:
        yield from method.generate(request)
    except (KeyboardInterrupt, GeneratorExit, MlxfillError):
        raise
    except BaseException as error:  # SystemExit too: the host outlives its plugins
        raise PluginError(f"generation method {method.name!r} failed: {one_line(error)}") from error


def _entered(
    method: GenerationMethod, tokens: abc.Sequence[object], sequence: Sequence, vocab_size: int
) -> Iterator[Emitted]:
    """The tokens of one forward, one after the other: each may be the last."""
    if not tokens:
        sequence.counters.rounds.append(0)
    for left, given in zip(reversed(range(len(tokens))), tokens, strict=True):
        token, origin = _checked(method, given, vocab_size)
        # A method's forwards all count, those that show nothing as well.
        yield from sequence.emit([token], origin, (), more=left > 0, alone=False)
        if sequence.ending is not None:
            return


def _listed(method: GenerationMethod, tokens: object) -> list[object]:
    if isinstance(tokens, Iterable) and not isinstance(tokens, str):
        return list(tokens)
    raise PluginError(
        f"generation method {method.name!r} yielded {tokens!r}, not the tokens of a forward"
    )


def _checked(method: GenerationMethod, given: object, vocab_size: int) -> tuple[int, str]:
    """A pair of id and origin."""
    match given:
        case (int() as token, str() as origin) if is_whole(token) and 0 <= token < vocab_size:
            return token, origin
    raise PluginError(
        f"generation method {method.name!r} yielded {given!r}, which is no token id of this model "
        "with its origin"
    )
