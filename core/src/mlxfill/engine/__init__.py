"""The decode engine: the way of a token, from a prompt to text.

Each line imports what stands below it, never what stands above (``lint-imports`` checks that)::

    loading, compat       a name to an engine (finding); mlx-lm's ``stream_generate``
    engine                one model, its plugins, and what its requests share
    resume, audit, batch  what is done with whole runs
    opening               one request is put together (resources: of what all of them share):
      admission             what this engine refuses
      beginning             caches of earlier prompts (prewarm, prompt_store, boundaries)
      proposers             who guesses: sources at the table, the drafter (mount, learnt)
      holder                who holds the reply to a schema
    scheduler             several requests share forwards: rows join and leave
    run                   one request as its caller holds it (collected: what he gets back)
    runstate              what it is made of, and its stages (brake: ends or rests it)
    checkpoint/           a run on the disk, and what it must find again there
    prefill, loop         the prompt, then token by token; promptscores: its scores;
                          readers, rowloop: of several rows
      course                what both loops know of a reply (method: of other ways to generate)
    forward               windows, steps and chunks through the target; rowforward: of several rows
    session, drafting     ask who guesses, tell what came of it (drafter, telling, guarded)
    watched, trace        checks and tells what happens in between (replay: for an audit)
    reply                 tokens to text and tool calls (text, sections)
    options, prompt       what goes in (keywords, legal, schema, roles, contents, markers,
                          sealed, shortest, thoughts, unread)
    results               what comes out (counters, phases)
"""

from mlxfill.engine.checkpoint.checkpoint import Checkpoint
from mlxfill.engine.engine import Engine
from mlxfill.engine.loading import load
from mlxfill.engine.results import Piece, PromptCache, Result, Stats
from mlxfill.engine.run import Run
from mlxfill.engine.scheduler import RowScheduler

__all__ = [
    "Checkpoint",
    "Engine",
    "Piece",
    "PromptCache",
    "Result",
    "RowScheduler",
    "Run",
    "Stats",
    "load",
]
