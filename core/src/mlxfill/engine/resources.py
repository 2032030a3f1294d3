"""What the requests to one engine share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from mlxfill.resume.identity import Identity

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mlxfill.chat.template_checks import TemplateChecks
    from mlxfill.config import Config
    from mlxfill.contracts import Fault
    from mlxfill.decode.profile import ModelProfile
    from mlxfill.decode.trace import Tracing
    from mlxfill.model.reading import Stream
    from mlxfill.model.target import Target
    from mlxfill.model.team import RankGroup
    from mlxfill.plugins import PluginManager
    from mlxfill.policy.drafter import Drafter
    from mlxfill.prefix_cache.boundaries import SharedPrefixes
    from mlxfill.prefix_cache.store import PrefixCache
    from mlxfill.rewind.window import MakeRewinder


@define(eq=False, kw_only=True)
class Resources:
    """The model, the plugins that are on, and what outlives a request.

    ``faults``: the engine's, a request begins with a copy of them; ``made_by``: arguments of
    ``mlxfill.load``, for whoever resumes a checkpoint elsewhere.
    """

    config: Config
    plugins: PluginManager
    target: Target
    tokenizer: TokenizerWrapper
    context: int | None
    team: RankGroup
    stream: Stream
    num_draft_tokens: int | None
    rewinder: MakeRewinder
    learnt: ModelProfile
    prompts: PrefixCache
    starts: SharedPrefixes
    tracing: Tracing
    unread: TemplateChecks
    faults: list[Fault]
    drafter: Drafter | None = None
    made_by: dict[str, Any] = field(factory=dict)

    @property
    def identity(self) -> Identity:
        """What checkpoints name of it."""
        return Identity(self.config, self.plugins, self.learnt.fingerprint, self.made_by)
