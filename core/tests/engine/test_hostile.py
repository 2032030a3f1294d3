"""Plugins that break, lie and attack: the output stays, the host lives, the fault names the plugin.

Each row of a table is the text of an installed module.  It is seated before a good plugin, in an
engine that answers two requests; what it did must be reported under its name, or be harmless.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen

from diaries import diary_model
from mlxfill import DrafterError, Engine, PluginError, load_config
from mlxfill.plugins import PluginManager
from mlxfill_testing import plain, shared_model, tiny_tokenizer
from mlxfill_testing.installed import HEADER, FakeSite

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("workplace")

PROMPT = [7, 30, 9, 30, 11, 4, 7, 30, 9]
COUNT = 16


class Clock:
    """Goes on by itself a little, and when a plugin says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now

    def wait(self, seconds: float) -> None:
        """As ``time.sleep``."""
        self.now += seconds


OPTIONS: list[dict[str, Any]] = [{}, {"temperature": 0.9, "seed": 2}]

SOURCE = (
    HEADER
    + """
class Source:
    def __init__(self, request):
        self.ids = list(request.prompt_ids)

    def observe(self, ids):
        self.ids += ids

    def propose(self, view):
        return offer(self.ids[-3:])

    def resolved(self, proposal, accepted):
        pass

def offer(ids, policy=mlxfill.Policy.VERIFY):
    return mlxfill.Proposal(tuple(ids), policy, "hostile")

def raising(error):
    def method(*args, **more):
        raise error
    return method

@mlxfill.hookimpl
def mlxfill_proposal_sources(request):
    return [Source(request)]
"""
)
DRAFTER = (
    SOURCE.partition("@mlxfill.hookimpl")[0]
    + """
class Rows:
    namespace, aux_layers, prefill_mode, row_count = "hostile", (), "tail-split", 1

    def draft(self, pending, depth, positions):
        return [[1, 2][:depth]]

    def prefill(self, tokens, context=None): pass
    commit = append = keep = prefill
    def consume(self, tokens, lengths, context=None): pass

    def capture(self, row):
        return mlxfill.DraftCheckpoint("hostile", 0, {})

    def close(self): pass

class Provider:
    id, weights_bytes, default_depth = "hostile", 0, 3
    supports_target_adapters = supports_external_tokens = True

    def open(self, target, samplings, checkpoints):
        return Rows()

    def close(self): pass

def load(artifact, target, settings):
    return Provider()

@mlxfill.hookimpl
def mlxfill_draft_kinds():
    return [mlxfill.DraftKind("hostile", "draft", lambda f: False, lambda *a: load(*a), False)]
"""
)
GOOD = (
    SOURCE
    + """
def propose(self, view):
    last = self.ids[-1]
    at = next((i for i in range(len(self.ids) - 2, -1, -1) if self.ids[i] == last), None)
    return at and offer(self.ids[at + 1 : at + 4]) or None
Source.propose = propose
"""
)


@frozen
class Deed:
    """A module, where its fault is reported ("" for harmless) and what is said of it."""

    text: str
    where: str = ""
    said: str = ""


def source(extra: str, where: str = "", said: str = "") -> Deed:
    """A source that is right but for ``extra``."""
    return Deed(f"{SOURCE}\n{extra}", where, said)


def drafter(extra: str, where: str = "", said: str = "") -> Deed:
    """A drafter that is right but for ``extra``."""
    return Deed(f"{DRAFTER}\n{extra}", where, said)


def hook(name: str, body: str, said: str) -> Deed:
    """A hook with this body."""
    text = f"{HEADER}\n@mlxfill.hookimpl\ndef mlxfill_{name}():\n    {body}"
    return Deed(text, f"mlxfill_{name}", said)


AT_START = {
    "raises at import": Deed("raise RuntimeError('no')", "start", "RuntimeError: no"),
    "exits at import": Deed("raise SystemExit(3)", "start", "SystemExit: 3"),
    "recurses at import": Deed("def f(): f()\nf()", "start", "RecursionError: maximum recursion"),
    "is no Python": Deed("def broken(:", "start", "SyntaxError"),
    "imports what is not there": Deed("import mlxfill_gone", "start", "ModuleNotFoundError"),
    "an API of tomorrow": Deed("MLXFILL_API = 3", "start", "is written for API 3"),
    "an API in words": Deed("MLXFILL_API = 'one'", "start", "is written for API 'one'"),
    "a misspelt hook": Deed(
        f"{HEADER}@mlxfill.hookimpl\ndef mlxfill_sources(request): pass", "start", "unknown hook"
    ),
    "a wrong signature of a hook": Deed(
        f"{HEADER}@mlxfill.hookimpl\ndef mlxfill_observe(evil): pass", "start", "'evil'"
    ),
    "wraps others' hooks": Deed(
        f"{HEADER}@mlxfill.hookimpl(wrapper=True)\ndef mlxfill_observe(event):\n    yield",
        "start",
        "wraps the hook",
    ),
    "exits in its settings": Deed(
        f"{HEADER}@mlxfill.hookimpl\ndef mlxfill_settings(): raise SystemExit(1)",
        "start",
        "fails in mlxfill_settings: SystemExit: 1",
    ),
}
IN_HOOKS = {
    "a hook raises": hook("proposal_sources", "raise KeyError('x')", "KeyError: 'x'"),
    "a hook exits": hook("proposal_sources", "raise SystemExit(4)", "SystemExit: 4"),
    "a hook recurses": hook("proposal_sources", "return mlxfill_proposal_sources()", "RecursionE"),
    "a hook answers a number": hook("proposal_sources", "return 7", "returned 7, not a list"),
    "a hook answers junk": hook("proposal_sources", "return [7]", "no propose"),
    "a hook never ends its answer": hook(
        "proposal_sources", "return iter(lambda: mlxfill, 0)", "more than"
    ),
    "processors that are none": hook("logits_processors", "return ['x']", "among its logits"),
    "delimiters that are none": hook("delimiters", "return ['x']", "among its delimiters"),
    "an observer raises": hook("observe", "raise OSError('full')", "OSError: full"),
    "an observer exits": hook("observe", "raise SystemExit(5)", "SystemExit: 5"),
    "a method that is none": hook("generation_method", "return 3", "which has no name"),
}
PROPOSING = {
    "raises": source("Source.propose = raising(ValueError('no'))", "propose", "ValueError: no"),
    "exits": source("Source.propose = raising(SystemExit(6))", "propose", "SystemExit: 6"),
    "raises its own kind": source(
        "class Odd(BaseException): pass\nSource.propose = raising(Odd('x\\ny'))",
        "propose",
        "Odd: x y",
    ),
    "ends generators": source(
        "Source.propose = raising(GeneratorExit())", "propose", "GeneratorExit"
    ),
    "stops iterations": source(
        "Source.propose = raising(StopIteration())", "propose", "StopIteration"
    ),
    "recurses": source("Source.propose = lambda s, v: s.propose(v)", "propose", "RecursionError"),
    "takes no view": source("Source.propose = lambda self: None", "propose", "TypeError"),
    "answers text": source("Source.propose = lambda s, v: 'x'", "propose", "answered str"),
    "answers a generator": source(
        "Source.propose = lambda s, v: (i for i in [1])", "propose", "answered generator"
    ),
    "offers a list": source(
        "Source.propose = lambda s, v: mlxfill.Proposal([1, 2], mlxfill.Policy.VERIFY, 'x')",
        "propose",
        "ids must be a tuple, not list",
    ),
    "offers floats": source("Source.propose = lambda s, v: offer([1, 2.0])", "propose", "ints"),
    "offers bools": source("Source.propose = lambda s, v: offer([1, True])", "propose", "ints"),
    "offers negatives": source("Source.propose = lambda s, v: offer([1, -2])", "propose", "id -2"),
    "offers ids beyond": source("Source.propose = lambda s, v: offer([64, 1])", "propose", "id 64"),
    "offers huge ids": source(
        "Source.propose = lambda s, v: offer([1, 2**70])", "propose", "outside the vocabulary of 64"
    ),
    "offers a million ids": source("Source.propose = lambda s, v: offer([1, 2] * 500_000)"),
    "offers nothing at all": source("Source.propose = lambda s, v: offer([])"),
    "offers a subclass": source(
        "class P(mlxfill.Proposal): pass\n"
        "Source.propose = lambda s, v: P((1, 2), mlxfill.Policy.VERIFY, 'x')",
        "propose",
        "answered P, not a Proposal",
    ),
    "asserts without trust": source(
        "Source.propose = lambda s, v: offer([1, 2, 3], mlxfill.Policy.ASSERT)"
    ),
    "an evidence beyond reason": source(
        "Source.propose = lambda s, v: mlxfill.Proposal((1, 2), mlxfill.Policy.VERIFY, 'x',"
        " evidence=10**30)"
    ),
    "one offer for ever": source("ONE = offer([1, 2])\nSource.propose = lambda s, v: ONE"),
    "hangs": source(
        "import time\nSource.propose = lambda s, v: time.perf_counter.wait(0.3)",
        "propose",
        "TimeoutError",
    ),
    "changes the view": source(
        "def propose(self, view):\n    view.budget = 0\nSource.propose = propose",
        "propose",
        "AttributeError",
    ),
    "adds to the view": source(
        "def propose(self, view):\n    view.more = 0\nSource.propose = propose",
        "propose",
        "AttributeError",
    ),
    "changes the tail": source(
        "def propose(self, view):\n    view.tail(5).clear()\nSource.propose = propose"
    ),
    "asks for a tail of everything": source(
        "def propose(self, view):\n    view.tail(10**30)\nSource.propose = propose"
    ),
    "keeps the view": source(
        "def propose(self, view):\n    self.view = view\n"
        "def observe(self, ids):\n    vars(self).get('view') and self.view.tail(3).clear()\n"
        "Source.propose, Source.observe = propose, observe"
    ),
    "another request's source": source(
        "FIRST = []\n@mlxfill.hookimpl\ndef mlxfill_proposal_sources(request):\n"
        "    FIRST.append(Source(request))\n    return FIRST[:1]"
    ),
    "one source twice": source(
        "@mlxfill.hookimpl\n"
        "def mlxfill_proposal_sources(request):\n    return [Source(request)] * 2"
    ),
    "draws from the global generators": source(
        "def propose(self, view):\n    import random, mlx.core as mx\n    random.seed(1)\n"
        "    mx.random.seed(1)\nSource.propose = propose"
    ),
}
LISTENING = {
    "observe raises": source("Source.observe = raising(OSError('x'))", "observe", "OSError: x"),
    "observe exits": source("Source.observe = raising(SystemExit(7))", "observe", "SystemExit: 7"),
    "observe changes the ids": source(
        "def observe(self, ids):\n    ids[0] = 1\nSource.observe = observe",
        "observe",
        "does not support item assignment",
    ),
    "observe hangs": source(
        "import time\nSource.observe = lambda s, i: time.perf_counter.wait(0.3)",
        "observe",
        "TimeoutError",
    ),
    "resolved raises": source("Source.resolved = raising(IndexError())", "resolved", "IndexError"),
    "resolved exits": source("Source.resolved = raising(SystemExit)", "resolved", "SystemExit"),
    "resolves itself too": source(
        "def propose(self, view):\n    made = offer([1, 2])\n    self.resolved(made, 1)\n"
        "    return made\nSource.propose = propose"
    ),
    "near raises": source("Source.near = raising(ValueError('n'))", "near", "ValueError: n"),
    "near exits": source("Source.near = raising(SystemExit(8))", "near", "SystemExit: 8"),
    "near is a riddle": source(
        "class Riddle:\n    def __bool__(self): raise ValueError('?')\n"
        "Source.near = lambda self: Riddle()",
        "near",
        "ValueError: ?",
    ),
    "counts exit": source("Source.counts = property(raising(SystemExit(9)))"),
    "counts are junk": source("Source.counts = {'x': 'y', 3: float('nan')}"),
    "a method that exits when it is looked up": source(
        "Source.propose = property(raising(SystemExit(2)))",
        "mlxfill_proposal_sources",
        "SystemExit",
    ),
    "forgets its methods": source(
        "def observe(self, ids):\n    self.propose = None\nSource.observe = observe",
        "propose",
        "TypeError: 'NoneType' object is not callable",
    ),
    "equal to everything": source("Source.__eq__ = lambda s, o: True\nSource.__hash__ = None"),
    "a type that cannot be hashed": source(
        "class Meta(type):\n    def __hash__(self): raise TypeError('no')\n"
        "class Odd(Source, metaclass=Meta): pass\n"
        "@mlxfill.hookimpl\ndef mlxfill_proposal_sources(request):\n    return [Odd(request)]"
    ),
    "an error that cannot be told": source(
        "class Mute(Exception):\n    def __str__(self): raise SystemExit(1)\n"
        "Source.propose = raising(Mute())",
        "propose",
        "Mute",
    ),
}
DRAFTING = {
    "open raises": drafter("Provider.open = raising(OSError('x'))", "open", "OSError: x"),
    "open exits": drafter("Provider.open = raising(SystemExit(1))", "open", "SystemExit: 1"),
    "opens nothing": drafter("Provider.open = lambda *a: None", "open", "AttributeError"),
    "aux_states in words": drafter("Rows.aux_layers = 'all'", "open", "wants the output of layer"),
    "aux_states that exit": drafter(
        "Rows.aux_layers = property(raising(SystemExit(1)))", "open", "SystemExit: 1"
    ),
    "a mode that exits": drafter(
        "Rows.prefill_mode = property(raising(SystemExit(1)))", "open", "SystemExit: 1"
    ),
    "prefill exits": drafter("Rows.prefill = raising(SystemExit(1))", "prefill", "SystemExit: 1"),
    "draft raises": drafter("Rows.draft = raising(KeyError('x'))", "draft", "KeyError: 'x'"),
    "draft exits": drafter("Rows.draft = raising(SystemExit(1))", "draft", "SystemExit: 1"),
    "draft recurses": drafter("Rows.draft = lambda s, *a: s.draft(*a)", "draft", "RecursionError"),
    "draft never ends": drafter(
        "import itertools\nRows.draft = lambda s, *a: [itertools.count(1)]"
    ),
    "drafts without end of rows": drafter(
        "import itertools\nRows.draft = lambda s, *a: itertools.repeat([1])", "draft", "ValueError"
    ),
    "drafts beyond": drafter("Rows.draft = lambda *a: [[64]]", "draft", "vocabulary"),
    "drafts floats": drafter("Rows.draft = lambda *a: [[0.5]]", "draft", "vocabulary"),
    "commit raises": drafter("Rows.commit = raising(OSError('x'))", "commit", "OSError: x"),
    "commit exits": drafter("Rows.commit = raising(SystemExit(1))", "commit", "SystemExit: 1"),
    "close exits": drafter("Rows.close = raising(SystemExit(1))", "close", "SystemExit: 1"),
}
HARMLESS_OR_NAMED = {**AT_START, **IN_HOOKS, **PROPOSING, **LISTENING, **DRAFTING}


@cache
def written(**options: Any) -> Any:
    """What plain decoding writes."""
    return plain(shared_model("llama"), PROMPT, COUNT, **options)


@pytest.fixture
def seated(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install a hostile plugin and a good one, and make an engine with both."""
    monkeypatch.setattr("mlxfill.engine.builder.PROPOSE_BUDGET_S", 0.05)
    monkeypatch.setattr(time, "perf_counter", Clock())
    engines: list[Engine] = []

    def make(text: str, model: Any = None, **options: Any) -> Engine:
        for name, module in (("bad", text), ("good", GOOD)):
            site.forget()
            if engines:
                site.remove(f"mlxfill_{name}")
            site.add(name, module)
        config = load_config({"gate": {"enabled": False}})
        manager = PluginManager.load(config, ["bad", "good"], tolerant=True)
        if text.startswith(DRAFTER):
            options.setdefault("draft_kind", "hostile")
        model = shared_model("llama") if model is None else model
        engine = Engine(model, tiny_tokenizer(), plugins=manager, config=config, **options)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()


@pytest.mark.parametrize("deed", HARMLESS_OR_NAMED.values(), ids=list(HARMLESS_OR_NAMED))
def test_output_stays_and_the_fault_names_the_plugin(seated: Any, deed: Deed) -> None:
    engine = seated(deed.text)
    for options in OPTIONS:  # the host lives: it answers again
        expected = written(**options)
        result = engine.generate(PROMPT, max_tokens=COUNT, eos_token_ids=(), **options)
        assert result.tokens == expected.tokens
        assert result.text == expected.text
        assert result.finish_reason == expected.finish_reason
        assert {fault.plugin for fault in result.faults} == ({"bad"} if deed.where else set())
        for fault in result.faults:
            assert fault.where == deed.where
            assert deed.said in fault.message
            assert "\n" not in fault.message


def test_there_are_many_kinds() -> None:
    assert len(HARMLESS_OR_NAMED) >= 80


# --- what a request cannot go on without ---------------------------------------------------

REWINDER = (
    HEADER
    + """
class Rewinder:
    needs_replay = False

    def __init__(self, entry, layer): self.entry, self.layer = entry, layer
    def begin(self): pass
    def commit(self): pass
    def rewind(self, keep): self.entry.offset -= self.layer.window() - keep

LIMIT, calls = 12, []

def late(error):
    def method(self, *args):
        calls.append(1)
        if len(calls) > LIMIT: raise error
        if args: self.entry.offset -= self.layer.window() - args[0]
    return method

@mlxfill.hookimpl
def mlxfill_cache_rewinder(entry, layer):
    return Rewinder(entry, layer) if type(entry).__name__ == "Diary" else None
"""
)


def processing(body: str) -> str:
    """A plugin with this logits processor."""
    return (
        f"{HEADER}\ndef process(tokens, logits):\n    {body}\n"
        "@mlxfill.hookimpl\ndef mlxfill_logits_processors():\n    return [process]"
    )


PROCESSORS = {
    "raises": ("raise ValueError('no')", "ValueError: no"),
    "exits": ("raise SystemExit(3)", "SystemExit: 3"),
    "answers None": ("return None", "TypeError: answered NoneType, not an mx.array"),
    "answers another shape": ("return logits[:, :5]", "ValueError: answered shape (1, 5) for"),
}


@pytest.mark.parametrize(("body", "said"), PROCESSORS.values(), ids=list(PROCESSORS))
def test_a_logits_processor_that_fails_ends_the_request_by_name(
    seated: Any, body: str, said: str
) -> None:
    """Left out it would change the reply: nobody would know."""
    engine = seated(processing(body))
    for _ in range(2):
        with pytest.raises(PluginError) as caught:
            engine.generate(PROMPT, max_tokens=COUNT)
        assert str(caught.value).startswith("plugin 'bad' failed in its logits processor: ")
        assert said in str(caught.value)


@pytest.mark.parametrize(
    "extra",
    [
        "Rewinder.begin = lambda self: 1 / 0",
        "def rewind(self, keep): raise SystemExit(1)\nRewinder.rewind = rewind",
        "def rewind(self, keep): pass\nRewinder.rewind = rewind",
        "Rewinder.__init__ = lambda *a: 1 / 0",
    ],
    ids=["begin raises", "rewind exits", "rewind does nothing", "cannot be made"],
)
def test_a_rewinder_that_fails_its_proof_is_never_used(seated: Any, extra: str) -> None:
    expected = plain(shared_model("llama"), PROMPT, COUNT)
    engine = seated(f"{REWINDER}\n{extra}", model=diary_model())
    result = engine.generate(PROMPT, max_tokens=COUNT, eos_token_ids=())
    assert result.tokens == expected.tokens
    assert result.stats.spec["drafted"] == 0
    assert result.stats.spec["verify_unsupported"] > 0


RIGHT = """
def propose(self, view):
    return offer(TRUTH[len(self.ids) : len(self.ids) + 3])
Source.propose = propose
"""


@pytest.mark.parametrize(("where", "right"), [("begin", ""), ("commit", RIGHT), ("rewind", "")])
def test_a_rewinder_that_fails_later_ends_the_request_by_name(
    seated: Any, where: str, right: str
) -> None:
    """Nobody knows then what the cache holds."""
    truth = [*PROMPT, *plain(shared_model("llama"), PROMPT, COUNT).tokens]
    later = f"Rewinder.{where} = late(SystemExit(4))\nTRUTH = {truth}"
    engine = seated(f"{SOURCE}\n{right}\n{REWINDER}\n{later}", model=diary_model())
    with pytest.raises(PluginError) as caught:
        engine.generate(PROMPT, max_tokens=COUNT, eos_token_ids=())
    assert str(caught.value) == f"plugin 'bad' failed in {where}() of its rewinder: SystemExit: 4"


MOUNTING = {
    "load raises": ("load = raising(KeyError('x'))", "failed to load hostile: KeyError: 'x'"),
    "load exits": ("load = raising(SystemExit(1))", "failed to load hostile: SystemExit: 1"),
    "load answers junk": ("load = lambda *a: 7", "its provider has weights_bytes None, not int"),
    "weights in words": ("Provider.weights_bytes = 'x'", "has weights_bytes 'x', not int of at"),
    "no depth": ("Provider.default_depth = 0", "has default_depth 0, not int of at least 1"),
    "no open": ("Provider.open = None", "its provider has no open()"),
    "weights that exit": ("Provider.weights_bytes = property(raising(SystemExit(1)))", "SystemEx"),
}


@pytest.mark.parametrize(("extra", "said"), MOUNTING.values(), ids=list(MOUNTING))
def test_a_drafter_that_cannot_be_mounted_is_refused_by_name(
    seated: Any, extra: str, said: str
) -> None:
    with pytest.raises(DrafterError) as caught:
        seated(f"{DRAFTER}\n{extra}")
    assert str(caught.value).startswith("plugin 'bad' failed to load hostile: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_kind_that_cannot_even_look_is_named(seated: Any, tmp_path: Any) -> None:
    text = DRAFTER.replace("lambda f: False, ", "raising(SystemExit(1)), ").replace(
        ", False)]", ")]"
    )
    with pytest.raises(PluginError, match=r"plugin 'bad' failed to look at .*: SystemExit: 1"):
        seated(text, draft=tmp_path, draft_kind=None)


def test_a_provider_that_cannot_close_does_not_keep_the_model(seated: Any) -> None:
    engine = seated(f"{DRAFTER}\nProvider.close = raising(SystemExit(1))")
    engine.close()
    assert [(fault.plugin, fault.where) for fault in engine.faults] == [("bad", "close")]


# --- what belongs to others ----------------------------------------------------------------

GREEDY_HANDS = {
    "messages": "request.messages[0]['content'] = 'evil'",
    "tools": "request.tools[0]['function']['name'] = 'evil'",
    "options": "request.template_options['evil'] = True",
    "prompt": "request.prompt_ids[0] = 1",
    "sampling": "request.sampling.temperature = 3",
}


@pytest.mark.parametrize("body", GREEDY_HANDS.values(), ids=list(GREEDY_HANDS))
def test_what_the_caller_gave_stays_the_callers(seated: Any, body: str) -> None:
    messages = [{"role": "user", "content": "on the thing"}]
    tools = [{"type": "function", "function": {"name": "get", "parameters": {}}}]
    options: dict[str, Any] = {"enable_thinking": True}
    text = f"{HEADER}\n@mlxfill.hookimpl\ndef mlxfill_proposal_sources(request):\n    {body}"
    engine = seated(text)
    again = [
        engine.generate(messages, tools=tools, max_tokens=8, template_options=options)
        for _ in range(2)
    ]
    assert again[0].tokens == again[1].tokens
    assert messages == [{"role": "user", "content": "on the thing"}]
    assert tools == [{"type": "function", "function": {"name": "get", "parameters": {}}}]
    assert options == {"enable_thinking": True}


def test_two_plugins_of_one_name_are_both_named(site: FakeSite) -> None:
    site.add("bad", SOURCE, distribution="one-owner")
    site.add("bad", SOURCE, distribution="other-owner")
    manager = PluginManager.load(load_config({}), ["bad"], tolerant=True)
    (fault,) = manager.faults
    assert "one-owner" in fault.message
    assert "other-owner" in fault.message


def test_ctrl_c_in_a_plugin_is_the_users(seated: Any) -> None:
    for method in ("propose", "observe", "resolved", "near"):
        engine = seated(f"{SOURCE}\nSource.{method} = raising(KeyboardInterrupt())")
        with pytest.raises(KeyboardInterrupt):
            engine.generate(PROMPT, max_tokens=COUNT, eos_token_ids=())
