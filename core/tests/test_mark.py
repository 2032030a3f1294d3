"""A prompt cache goes back to a mark as if nothing had been forwarded since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, make_prompt_cache

from mlxfill import CacheMark
from mlxfill_testing.models import ARCHITECTURES, VOCAB, tiny_model

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTEXT, AHEAD = 7, 3
UNUSUAL = ("deepseek_v41", "iquestloopcoder", "longcat_flash_ngram", "nemotron-nas", "plamo2")
"""A cache class of its own, two entries a layer, one beside the layers, one that nobody writes."""
IDS = [(i * 37 + 11) % VOCAB for i in range(CONTEXT + AHEAD + 1)]


def fed(model: Any, cache: list[Any], *windows: Sequence[int]) -> mx.array:
    """Logits ``[V]`` after the last id of the last window."""
    logits = mx.zeros(0)
    for window in windows:
        logits = model(mx.array([window]), cache=cache)[0, -1]
        mx.eval(logits, [entry.state for entry in cache])
    return logits


@pytest.mark.parametrize("keep", [0, 1, 2])
@pytest.mark.parametrize("context", [CONTEXT, CONTEXT - 3])  # a window of 8: wrapping and not
@pytest.mark.parametrize("name", [*ARCHITECTURES, *UNUSUAL])
def test_back_forgets_what_came_after(name: str, context: int, keep: int) -> None:
    model = tiny_model(name)
    tried, never = make_prompt_cache(model), make_prompt_cache(model)
    prompt, tail, last = IDS[:context], IDS[context : context + AHEAD], IDS[-1]
    fed(model, tried, prompt)
    mark = CacheMark(tried, ahead=AHEAD)
    fed(model, tried, *([token] for token in tail))
    held = mark.back(keep)
    assert held in {0, keep}
    again = [tail[held:keep]] if held < keep else []
    kept = [[token] for token in tail[:held]]
    ours = fed(model, tried, *again, [last])
    theirs = fed(model, never, prompt, *kept, *again, [last])
    assert mx.array_equal(ours, theirs)


def test_a_cache_that_can_be_trimmed_is_not_copied() -> None:
    model = tiny_model("llama")
    cache = make_prompt_cache(model)
    fed(model, cache, IDS[:CONTEXT])
    mark = CacheMark(cache, ahead=AHEAD)
    fed(model, cache, *([token] for token in IDS[CONTEXT:-1]))
    assert mark.back(2) == 2
    assert [entry.offset for entry in cache if isinstance(entry, KVCache)] == [CONTEXT + 2] * 4
