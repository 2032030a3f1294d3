"""Going on from a checkpoint."""

from __future__ import annotations

import os
import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs

from mlxfill.chat.prompt import Prompt
from mlxfill.checkpoint.checkpoint import Checkpoint
from mlxfill.checkpoint.content import checked
from mlxfill.checkpoint.serialize import restore_caches, unpacked
from mlxfill.contracts import DraftCheckpoint
from mlxfill.decode.runstate import Past
from mlxfill.decode.sequence import Emitted, Ending
from mlxfill.engine.admission import check_named
from mlxfill.engine.builder import RequestBuilder
from mlxfill.errors import CheckpointError, InputError
from mlxfill.prefix_cache.prefilled import PrefilledCache
from mlxfill.request.options import make_options
from mlxfill.resume.counters import give_back
from mlxfill.resume.fitting import (
    check_caches,
    check_lengths,
    check_scores,
    is_array,
    stored_ids,
    stored_objects,
    stored_options,
)
from mlxfill.resume.identity import other_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlxfill.decode.run import Run
    from mlxfill.decode.runstate import RunState
    from mlxfill.engine.resources import Resources
    from mlxfill.request.options import Options
    from mlxfill.request.results import FinishReason

GIVEN_AGAIN = (
    *("cancel", "checkpoint", "checkpoint_every", "keep_cache", "logits_processors", "max_tokens"),
    *("on_checkpoint", "sampler"),
)
"""Options that whoever resumes may give; all others are as they were."""


def resume(
    shared: Resources, source: Checkpoint | str | os.PathLike[str], given: Mapping[str, Any]
) -> Run:
    """A run that begins with the stored tokens and goes on after them.

    :raises CheckpointError: the checkpoint cannot be used here; one line that says why.
    :raises InputError: an option that cannot be given again, or ``source`` is of another type.
    """
    wrong = next((name for name in given if name not in GIVEN_AGAIN), None)
    if wrong is not None:
        raise InputError(
            f"{wrong} is as the checkpoint says; resume takes {', '.join(GIVEN_AGAIN)}"
        )
    if not isinstance(source, Checkpoint | str | os.PathLike):
        raise InputError(
            f"a checkpoint is a file or what on_checkpoint was handed, not {reprlib.repr(source)}"
        )
    if isinstance(source, Checkpoint):
        name, stored = "the checkpoint", source
    else:
        name, stored = str(Path(source)), Checkpoint.load(source)
        given = {"checkpoint": source, **given}
    try:
        return Resumption(shared, stored, given).run()
    except CheckpointError as error:
        raise CheckpointError(f"{name} cannot be resumed: {error}") from error


class Resumption:
    """One checkpoint on its way to a run."""

    def __init__(self, shared: Resources, stored: Checkpoint, given: Mapping[str, Any]) -> None:
        self._shared, self._arrays, self._given = shared, stored.arrays, given
        self._content = checked(stored.content)
        self._request = self._content.request
        size = shared.target.vocab_size
        self._prompt_ids = stored_ids("prompt", self._arrays, size)
        self._tokens = stored_ids("tokens", self._arrays, size)
        check_lengths(self._content, len(self._prompt_ids), len(self._tokens))

    def run(self) -> Run:
        """The run, checked against the engine that is to go on with it."""
        content, shared = self._content, self._shared
        options = self._options()
        if content.model != shared.learnt.fingerprint(options.adapters):
            origin = attrs.asdict(content.origin)
            found = other_weights(origin, shared.made_by, options.adapters)
            raise CheckpointError(found)
        ending = self._ending(options)
        held = self._held(options)
        if held is None and ending is None:
            raise CheckpointError("its reply is complete and cannot be made longer")
        faults = list(content.faults)
        faults += [fault for fault in shared.faults if fault not in faults]
        opening = RequestBuilder(shared, options, faults)
        run = opening.run(self._prompt(), self._tools(), held=held, resumed=True)
        try:
            self._check_deciding(run.state)
            run.state.revive(self._past(ending))
            give_back(run.state, content.tally)
        except BaseException:
            run.close()
            raise
        return run

    def _options(self) -> Options:
        """Those that were stored, with those that are given now.

        :raises CheckpointError: the stored ones are none.
        :raises InputError: those that are given are none.
        """
        missing = [name for name in self._request.needs if not self._given.get(name)]
        if missing:
            raise CheckpointError(f"it was made with {missing[0]}=...: give the same again")
        stored = stored_options(self._request.options, self._arrays)
        try:
            before = make_options({}, stored)
            before.sampling.check_vocabulary(self._shared.target.vocab_size)
        except InputError as error:
            raise CheckpointError(f"its options are not legal here: {error}") from error
        generated = len(self._tokens)
        if 0 <= before.max_tokens < generated:
            raise CheckpointError(f"it holds {generated} tokens of at most {before.max_tokens}")
        check_scores(self._content, before, generated)
        made = make_options({}, {**stored, **self._given})
        if 0 <= made.max_tokens < generated:
            raise InputError(
                f"max_tokens must be at least {generated}, what is there, not {made.max_tokens}"
            )
        return made

    def _ending(self, options: Options) -> Ending | None:
        reason = self._content.ending
        longer = options.max_tokens < 0 or options.max_tokens > len(self._tokens)
        if reason is None or (reason == "length" and longer):
            return None
        return Ending(cast("FinishReason", reason))

    def _held(self, options: Options) -> PrefilledCache | None:
        content, shared = self._content, self._shared
        if content.caches is None:
            return None
        if content.unnamed:
            check_named(options)
        count = content.unnamed + len(self._prompt_ids) + len(self._tokens) - 1
        caches = shared.target.new_cache(options.max_kv_size)
        restore_caches(caches, content.caches, self._arrays)
        check_caches(shared.target, caches, count, options)
        return PrefilledCache(caches, count, unnamed=content.unnamed, draft=self._draft(count))

    def _draft(self, held: int) -> DraftCheckpoint | None:
        stored = self._content.draft
        if stored is None:
            return None
        tensors = unpacked(stored.tensors, self._arrays)
        if not isinstance(tensors, dict) or not all(is_array(each) for each in tensors.values()):
            raise CheckpointError("draft.tensors must be arrays by name")
        if stored.processed_tokens != held:
            raise CheckpointError(
                f"draft.processed_tokens is {stored.processed_tokens}, where {held} are held"
            )
        return DraftCheckpoint(stored.namespace, held, tensors, stored.metadata)

    def _prompt(self) -> Prompt:
        messages = stored_objects("messages", self._request.messages, self._arrays)
        return Prompt(tuple(self._prompt_ids), self._request.text, messages)

    def _tools(self) -> list[dict[str, Any]] | None:
        tools: list[dict[str, Any]] | None = stored_objects(
            "tools", self._request.tools, self._arrays
        )
        return tools

    def _check_deciding(self, run: RunState) -> None:
        """What others than the model write must be written in the same way."""
        before, now = self._content.deciding, self._shared.identity.settings_of(run.deciding)
        for plugin in sorted(before.keys() | now.keys()):
            if before.get(plugin) != now.get(plugin):
                how = "with other settings" if plugin in before and plugin in now else "on"
                how = how if plugin in before else "off"
                raise CheckpointError(
                    f"plugin {plugin!r} decides tokens and was {how} when it was written: load the"
                    " engine with the same plugins, settings and trust"
                )

    def _past(self, ending: Ending | None) -> Past:
        content = self._content
        origins = [word for word, count in content.origins for _ in range(count)]
        return Past(
            tokens=[
                Emitted(token, origin, None)
                for token, origin in zip(self._tokens, origins, strict=True)
            ],
            ending=ending,
            logprobs=content.logprobs,
            top_logprobs=content.top_logprobs,
        )
