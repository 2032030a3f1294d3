"""One measurement on the tiny model: what is told of its answers, and the page that shows them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import mlxfill
from mlxfill_bench.advice import advise
from mlxfill_bench.charts import COLOURS, charts, save_pictures
from mlxfill_bench.observed import Observed, Token, by_position
from mlxfill_bench.page import TEMPLATE, page

if TYPE_CHECKING:
    from mlxfill_bench import Measurement

ARMS = ["spec-ngram", "fill-strict", "spec-ngram+draft=tiny-draft"]
VOID = {"meta", "br", "path", "use", "rect", "link", "image", "stop"}


class Elements(HTMLParser):
    """The elements of a page, which must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.said: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attributes}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attributes}))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append(data)


@pytest.fixture(scope="module")
def report(measured: Measurement) -> str:
    return page(measured, advise(measured, mlxfill.load_config({})))


# --- what was seen ---------------------------------------------------------------------


def test_every_arm_was_measured_and_gave_the_same_ids(measured: Measurement) -> None:
    assert [effect.arm for effect in measured.effects] == ARMS
    assert [effect.identical for effect in measured.effects] == [2, 2, 2]
    assert all(effect.lossless and effect.offered for effect in measured.effects)
    assert measured.plain.tokens_per_forward <= 1
    assert measured.plugins["spec-ngram+draft=tiny-draft"] == ("spec-ngram", "spec-two-model")


def test_the_watched_answers_are_the_timed_ones(measured: Measurement) -> None:
    by_key = {(seen.session, seen.arm): seen for seen in measured.observed}
    assert len(by_key) == len(measured.observed) == 2 * (len(ARMS) + 1)
    for session in ("call-a-tool", "quote-a-file"):
        plain = [token.id for token in by_key[session, "plain"].tokens]
        for arm in ARMS:
            assert [token.id for token in by_key[session, arm].tokens] == plain


def test_tokens_are_told_with_text_origin_and_forward(measured: Measurement) -> None:
    seen = next(s for s in measured.observed if (s.session, s.arm) == ("call-a-tool", ARMS[0]))
    assert '"name": "read_file"' in "".join(token.text for token in seen.tokens)
    assert {token.origin for token in seen.tokens} == {"sampled", "ngram"}
    forwards = [token.forward for token in seen.tokens]
    assert forwards == sorted(forwards)
    assert forwards[0] == 1
    assert forwards[-1] < len(forwards)
    plain = next(s for s in measured.observed if s.arm == "plain")
    assert [token.forward for token in plain.tokens] == list(range(1, len(plain.tokens) + 1))


def test_positions_count_what_was_judged(measured: Measurement) -> None:
    for effect in measured.effects:
        for positions in effect.by_position.values():
            assert [p.position for p in positions] == list(range(1, len(positions) + 1))
            judged = [p.judged for p in positions]
            assert judged == sorted(judged, reverse=True)
            assert all(0 <= p.accepted <= p.judged for p in positions)
            assert judged[-1] > 0
    assert measured.effects[1].by_position == {}
    assert set(measured.effects[2].by_position) == {"draft", "ngram"}


def test_positions_of_given_spans() -> None:
    seen = Observed("a", 1, "x", (), (("n", 3, 2), ("n", 1, 0), ("d", 2, 2)))
    other = Observed("a", 1, "y", (), (("n", 9, 9),))
    told = {
        origin: [(p.judged, p.accepted) for p in positions]
        for origin, positions in by_position([seen, other], "x").items()
    }
    assert told == {"d": [(1, 1), (1, 1)], "n": [(2, 1), (1, 1), (1, 0)]}


def test_turns_after_the_first_have_names_of_their_own() -> None:
    first, second = (Observed("a", turn, "x", (), ()) for turn in (1, 2))
    assert (first.name, second.name) == ("a", "a, turn 2")


def test_the_figures_are_json(measured: Measurement) -> None:
    told = json.loads(json.dumps(measured.as_dict()))
    assert told["model"] == "tiny"
    assert [arm["arm"] for arm in told["arms"]] == ARMS
    assert {"mlxfill", "mlx", "mlx-lm"} == set(told["versions"])


# --- the page --------------------------------------------------------------------------


def test_the_page_is_whole_and_asks_for_nothing(report: str) -> None:
    elements = Elements(report)
    assert elements.open == []
    assert not [tag for tag, _ in elements.found if tag in {"link", "img", "iframe", "object"}]
    links = [a.get("src") or a.get("href") or a.get("xlink:href") for _, a in elements.found]
    assert all(link.startswith("#") for link in links if link)
    assert "@import" not in report
    assert "url(http" not in report


def test_every_id_is_there_once_and_every_reference_leads_to_one(report: str) -> None:
    elements = Elements(report)
    ids = [a["id"] for _, a in elements.found if "id" in a]
    assert len(ids) == len(set(ids))
    wanted = {a["href"][1:] for tag, a in elements.found if tag == "a"}
    wanted |= {a[n][1:] for _, a in elements.found for n in ("xlink:href",) if n in a}
    wanted |= set(re.findall(r"url\(#([\w-]+)\)", report))
    wanted |= {a["aria-labelledby"] for _, a in elements.found if "aria-labelledby" in a}
    assert wanted <= set(ids)


def test_every_token_tells_its_text_and_origin(report: str, measured: Measurement) -> None:
    tokens = [a for tag, a in Elements(report).found if tag == "span" and "data-origin" in a]
    assert len(tokens) == sum(len(seen.tokens) for seen in measured.observed)
    for attributes in tokens:
        assert f" · {attributes['data-origin']} · forward " in attributes["title"]
    said = "".join(Elements(report).said)
    assert '"name": "read_file"' in said


def test_answers_and_plots_are_reached_with_the_keyboard(report: str) -> None:
    elements = Elements(report)
    answers = [a for tag, a in elements.found if a.get("class") == "tokens"]
    assert len(answers) == 8
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in answers)
    drawings = [a for tag, a in elements.found if tag == "svg"]
    assert [a["role"] for a in drawings] == ["img"] * 3
    assert all(a["aria-label"] for a in drawings)


def test_plots_take_the_colours_of_the_page(report: str) -> None:
    style = (TEMPLATE / "report.css").read_text("utf-8")
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for name in COLOURS:
        assert f"--{name}:" in light
        assert f"--{name}:" in dark
    for svg in re.findall(r"<svg.*?</svg>", report, re.DOTALL):
        fixed = set(re.findall(r"#[0-9a-f]{6}\b", svg)) - {"#ffffff"}
        assert fixed == set()
        assert set(re.findall(r"var\(--([a-z0-9-]+)\)", svg)) <= set(COLOURS)


def test_texts_of_models_and_users_are_no_markup(measured: Measurement) -> None:
    attack = "</script><script>alert(1)</script>\"'"
    token = Token(1, attack, "<b>odd", 1)
    seen = [attrs.evolve(s, session=attack, tokens=(token,)) for s in measured.observed]
    effects = [
        attrs.evolve(e, by_prompt={attack: e.speed}, differing=(attack,)) for e in measured.effects
    ]
    facts = {**measured.facts, "model": attack}
    odd = attrs.evolve(measured, observed=seen, effects=effects, facts=facts)
    report = page(odd, advise(odd, mlxfill.load_config({})))
    assert "alert(1)</script>" not in report
    assert [tag for tag, _ in Elements(report).found].count("script") == 1
    assert "other" in {
        a.get("class", "").split()[-1] for _, a in Elements(report).found if a.get("class")
    }


def test_many_prompts_are_cut_and_said_to_be(measured: Measurement) -> None:
    seen = [attrs.evolve(s, session=f"p{n}") for n in range(30) for s in measured.observed[:4]]
    speed = measured.effects[0].speed
    by_prompt = {f"p{n}": speed for n in range(30)}
    many = attrs.evolve(
        measured,
        observed=seen,
        effects=[attrs.evolve(e, by_prompt=by_prompt) for e in measured.effects],
        facts={**measured.facts, "prompts": 30},
    )
    report = page(many, advise(many, mlxfill.load_config({})))
    assert "The answers to 6 more prompts are left out here." in report
    assert report.count("<details") == 24


# --- pictures --------------------------------------------------------------------------


def test_pictures_are_written(measured: Measurement) -> None:
    save_pictures(Path("a/b"), measured)
    files = sorted(Path("a/b").iterdir())
    assert [file.name for file in files] == [
        "acceptance.png",
        "speed.png",
        "tokens-per-forward.png",
    ]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    Path("file").write_text("")
    with pytest.raises(mlxfill.InputError, match="--png file"):
        save_pictures(Path("file"), measured)


def test_where_nobody_guesses_there_is_no_plot_of_guesses(measured: Measurement) -> None:
    strict: Any = attrs.evolve(measured, effects=[measured.effects[1]])
    assert [chart.name for chart in charts(strict)] == ["speed", "tokens-per-forward"]
    assert charts(strict)[0].svg(strict) == charts(strict)[0].svg(strict)
