"""The command line: ``python -m mlxfill_model_tiny.train PART --out DIR``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mlxfill import MlxfillError
from mlxfill_model_tiny.arguments import positive
from mlxfill_model_tiny.corpus import TRAINING_SIZE
from mlxfill_model_tiny.train.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Run = Callable[[argparse.Namespace], None]

_TOKENIZER_DOCUMENTS = 3000


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one part.  A mistake of the caller ends in one line and exit code 2."""
    parser = _parser()
    options = parser.parse_args(arguments)
    run: Run = options.run
    try:
        run(options)
    except MlxfillError as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mlxfill_model_tiny.train",
        description="Train the tiny models, one part after the other, in this order.",
    )
    parts = parser.add_subparsers(required=True, metavar="PART")

    def add(name: str, run: Run, about: str) -> argparse.ArgumentParser:
        part = parts.add_parser(name, help=about, description=f"{name}: {about}")
        part.set_defaults(run=run)
        part.add_argument("--out", type=Path, required=True, help="the folder of all parts")
        return part

    tokenizer = add("tokenizer", _tokenizer, "byte-level BPE, trained on the corpus")
    _add_corpus_options(tokenizer, _TOKENIZER_DOCUMENTS)
    target = add("target", _target, "the hybrid target")
    _add_training_options(target, steps=900, copy_steps=500)
    draft = add("draft", _draft, "the dense draft model")
    _add_training_options(draft, steps=1600, copy_steps=300)
    mtp = add("mtp", _mtp, "the head that predicts several tokens, taught by the target")
    _add_training_options(mtp, steps=600)
    dflash = add("dflash", _dflash, "the drafter of whole blocks, taught by the target")
    _add_training_options(dflash, steps=1000, batch=2)
    packed = add("pack", _pack, "collect the models in OUT/models, as they are shipped")
    packed.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    return parser


def _add_corpus_options(part: argparse.ArgumentParser, documents: int) -> None:
    part.add_argument("--seed", type=int, default=0, help="same seed, same result (%(default)s)")
    part.add_argument(
        "--documents",
        type=positive,
        default=documents,
        help="conversations in the training set (%(default)s)",
    )


def _add_training_options(
    part: argparse.ArgumentParser, steps: int, copy_steps: int | None = None, batch: int = 8
) -> None:
    _add_corpus_options(part, TRAINING_SIZE)
    part.add_argument("--steps", type=positive, default=steps, help="batches (%(default)s)")
    part.add_argument(
        "--batch", type=positive, default=batch, help="conversations in a batch (%(default)s)"
    )
    if copy_steps is not None:
        part.add_argument(
            "--copy-steps",
            type=positive,
            default=copy_steps,
            help="batches of the copy task that comes first (%(default)s)",
        )


# The parts import mlx and mlx-lm when they run: `--help` needs neither.


def _tokenizer(options: argparse.Namespace) -> None:
    from mlxfill_model_tiny.train.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(options.out / "tokenizer", options.documents, options.seed)
    Console().print(f"{options.out / 'tokenizer'}: {tokenizer.get_vocab_size()} ids")


def _target(options: argparse.Namespace) -> None:
    from mlxfill_model_tiny.train.language_model import train_target

    train_target(_settings(options))


def _draft(options: argparse.Namespace) -> None:
    from mlxfill_model_tiny.train.language_model import train_draft

    train_draft(_settings(options))


def _mtp(options: argparse.Namespace) -> None:
    from mlxfill_model_tiny.train.mtp import train_mtp

    train_mtp(_settings(options, copy_steps=0))


def _dflash(options: argparse.Namespace) -> None:
    from mlxfill_model_tiny.train.dflash import train_dflash

    train_dflash(_settings(options, copy_steps=0))


def _pack(options: argparse.Namespace) -> None:
    from mlxfill_model_tiny.train.pack import pack

    sizes = pack(options.out, options.precision)
    for file, size in sizes.items():
        Console().print(f"{size:>9,} {file}", highlight=False)
    Console().print(f"{sum(sizes.values()):>9,} bytes in {options.out / 'models'}", highlight=False)


def _settings(options: argparse.Namespace, copy_steps: int | None = None) -> Settings:
    return Settings(
        out=options.out,
        steps=options.steps,
        copy_steps=options.copy_steps if copy_steps is None else copy_steps,
        seed=options.seed,
        documents=options.documents,
        batch=options.batch,
    )


if __name__ == "__main__":
    main()
