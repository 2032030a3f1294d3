"""How good the shipped models are: ``python -m mlxfill_model_tiny.check``."""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from attrs import frozen
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mlxfill_model_tiny.arguments import positive
from mlxfill_model_tiny.asks import Ask, Verdict, held_out_asks, judge
from mlxfill_model_tiny.corpus import transcripts
from mlxfill_model_tiny.folders import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LONGEST_REPLY = 200
_FRESH_SEED = 2000


@frozen
class Score:
    """How many of ``asks`` got a reply of each quality; see :class:`Verdict`."""

    asks: int
    well_formed: int
    right_tool: int
    exact: int

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Score:
        """Count."""
        all_ = list(verdicts)
        return cls(
            len(all_),
            sum(verdict.well_formed for verdict in all_),
            sum(verdict.right_tool for verdict in all_),
            sum(verdict.exact for verdict in all_),
        )


def reply_to(ask: Ask, model: Any, tokenizer: Any, *, thinking: bool) -> str:  # noqa: ANN401
    """The greedy reply of ``mlx_lm.stream_generate``, without any plugin.

    :param model: with ``tokenizer`` as ``mlx_lm.load`` returns them.
    """
    from mlx_lm import stream_generate

    prompt = tokenizer.apply_chat_template(
        ask.messages, tools=ask.tools, add_generation_prompt=True, enable_thinking=thinking
    )
    pieces = stream_generate(model, tokenizer, prompt, max_tokens=_LONGEST_REPLY)
    return "".join(piece.text for piece in pieces)


def judged(asks: Sequence[Ask], *, thinking: bool) -> dict[str, list[Verdict]]:
    """The shipped target's verdicts, by kind of ask."""
    from mlx_lm import load

    model, tokenizer, *_ = load(str(FOLDERS["tiny"]))
    verdicts: dict[str, list[Verdict]] = defaultdict(list)
    for ask in track(asks, "asking", transient=True):
        reply = reply_to(ask, model, tokenizer, thinking=thinking)
        verdicts[ask.kind].append(judge(ask, reply))
    return verdicts


def drafters(conversations: int) -> dict[str, float]:
    """Share of the assistant's tokens that the shipped drafters guess right (0 to 1).

    The draft model is held against the text of fresh conversations, the MTP head and the block
    drafter against what the target says there; of its blocks also how many drafts in a row.
    """
    from mlx_lm import load
    from tokenizers import Tokenizer

    from mlxfill_model_tiny.train.dflash import block_agreement
    from mlxfill_model_tiny.train.documents import encoded
    from mlxfill_model_tiny.train.fast_layers import fast_training
    from mlxfill_model_tiny.train.files import load_block_drafter, load_head
    from mlxfill_model_tiny.train.losses import next_token_quality
    from mlxfill_model_tiny.train.mtp import agreement

    tokenizer = Tokenizer.from_file(str(FOLDERS["tiny"] / "tokenizer.json"))
    documents = encoded(tokenizer, transcripts(conversations, _FRESH_SEED))
    target = load(str(FOLDERS["tiny"]))[0]
    draft = load(str(FOLDERS["tiny-draft"]))[0]
    head = load_head(FOLDERS["tiny-mtp"])
    with fast_training():
        alone = next_token_quality(draft, documents)["accuracy"]
        guessed = agreement(target, head, documents)
        blocks = block_agreement(target, load_block_drafter(FOLDERS["tiny-dflash"]), documents)
    return {
        "draft, next token": alone,
        **{f"mtp, {name}": value for name, value in guessed.items()},
        **{f"dflash, {name}": value for name, value in blocks.items()},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m mlxfill_model_tiny.check", description="Measure the shipped models."
    )
    parser.add_argument("--asks", type=positive, default=100, help="held-out asks (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which asks (%(default)s)")
    parser.add_argument(
        "--conversations", type=positive, default=64, help="for the drafters (%(default)s)"
    )
    options = parser.parse_args(arguments)
    console = Console()
    asks = held_out_asks(options.asks, options.seed)
    for mode, thinking in (("thinking", True), ("not thinking", False)):
        verdicts = judged(asks, thinking=thinking)
        console.print(_quality_table(f"tiny, greedy, {mode}", verdicts))
    console.print(_drafter_table(drafters(options.conversations)))


def _quality_table(title: str, verdicts: dict[str, list[Verdict]]) -> Table:
    table = Table("kind of ask", "asks", "well-formed", "right tool", "exact", title=title)
    for kind in sorted(verdicts):
        table.add_row(kind, *_cells(verdicts[kind]))
    table.add_section()
    table.add_row("all", *_cells([each for some in verdicts.values() for each in some]))
    return table


def _cells(verdicts: Sequence[Verdict]) -> list[str]:
    score = Score.of(verdicts)
    return [str(n) for n in (score.asks, score.well_formed, score.right_tool, score.exact)]


def _drafter_table(shares: dict[str, float]) -> Table:
    table = Table("guess", "right", title="drafters, fresh conversations")
    for name, share in shares.items():
        table.add_row(name, f"{share:.3f}")
    return table


if __name__ == "__main__":
    main()
