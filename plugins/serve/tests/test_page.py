"""The page at ``/`` in a real browser (Debian: ``apt install chromium chromium-driver``)."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from selenium.webdriver.remote.webelement import WebElement


FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-prefers-reduced-motion",  # colours are read at once, not on their way
)
THOUGHT = "They ask for the weather.\n\nI look it up."
ANSWER = """# Weather

It is **mild**; see [the map](https://example.com/map).

| city | degrees |
|---|--:|
| Paris | 18 |

```python
def mild(degrees: int) -> bool:
    return degrees > 15  # "warm"
```
"""
CALLS = """<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris", "id": 1234567890123456789, "days": []}}
</tool_call>
<tool_call>
{"name": "get_weather", "arguments": {"city": "Rome"}}
</tool_call>"""
HOSTILE = """<script>document.title = "taken"</script>
<img src=x onerror="document.title='taken'"> <b onclick="document.title='taken'">bold</b>

[one](javascript:document.title='taken') [two](JaVaScRiPt:alert(1)) [three](data:text/html,hello)
[four](vbscript:x) <javascript:alert(1)> [five](/metrics) [six](//example.com/x "a\\" onclick=\\"x")

![seen](https://example.com/pixel.png) ![own](/icon.svg) ![](data:image/png;base64,AA)

```"><img/src=x/onerror=alert(1)>
</code></pre><script>document.title = "taken"</script>
```

<style>body { display: none }</style><iframe src="https://example.com"></iframe>
<a href="javascript:alert(1)" id="talk" style="position:fixed">x</a> <form action="https://example.com">
"""

BREAKING = """
const token = { origin: "sampled", token: 1, text: "Half" };
const chunk = { choices: [{ delta: { content: "Half" } }], mlxfill: token };
const sent = new TextEncoder().encode(`data: ${JSON.stringify(chunk)}\\n\\n`);
window.fetch = async () => new Response(new ReadableStream({
  start: (stream) => stream.enqueue(sent),
  pull: (stream) => stream.error(new TypeError("network error")),
}, { highWaterMark: 0 }));
"""


def chromium() -> str | None:
    """Where a Chromium is, by the names that it goes by."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


# Where everything is to be tested, as in CI, a missing browser is a failure, not an excuse.
pytestmark = pytest.mark.skipif(
    not (chromium() and shutil.which("chromedriver")) and "CI" not in os.environ,
    reason="needs Chromium and its driver: apt install chromium chromium-driver",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = chromium() or "chromium"
    profile: Path = tmp_path_factory.mktemp("profile")
    for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1200,800"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options, ChromeService(shutil.which("chromedriver") or "chromedriver"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def drafting(serve_tiny: Any, load_tiny: Any, script: Any) -> Iterator[Any]:
    """A server with a drafter, so that every origin can occur, and with a script."""
    with serve_tiny(lambda: script.on(load_tiny(draft="tiny-mtp", plugins=None)), rows=2) as served:
        yield served


@pytest.fixture(autouse=True)
def unscripted(script: Any) -> Iterator[None]:
    yield
    script.text = None


@pytest.fixture
def page(browser: Chrome, drafting: Any) -> Chrome:
    return fresh(browser, drafting.url)


def fresh(browser: Chrome, url: str) -> Chrome:
    """The page as someone sees it who comes for the first time."""
    browser.get("about:blank")
    where = {"origin": url, "storageTypes": "all"}
    browser.execute_cdp_cmd("Storage.clearDataForOrigin", where)
    visit(browser, url)
    complaints(browser)  # those of the page before
    return browser


def visit(browser: Chrome, url: str) -> None:
    browser.get(url)
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "#model option, .failed"))


def wait(browser: Chrome, condition: Callable[[], Any], seconds: float = 120) -> Any:
    return WebDriverWait(browser, seconds, poll_frequency=0.05).until(lambda _: condition())


def ask(page: Chrome, text: str) -> None:
    page.find_element(By.ID, "text").send_keys(text, Keys.ENTER)


def answered(page: Chrome, number: int = 1) -> WebElement:
    """The reply with that number, when it has ended and the figures and charts tell of it."""

    def ended() -> WebElement | None:
        replies = page.find_elements(By.CSS_SELECTOR, "#talk > .assistant")
        idle = page.find_element(By.ID, "send").text == "Send"
        return replies[number - 1] if len(replies) >= number and idle else None

    found: WebElement = wait(page, ended)
    # The page draws in the next frame: what is asked for here comes after it in that frame.
    page.execute_async_script("requestAnimationFrame(arguments[0])")
    return found


def see_tokens(page: Chrome) -> None:
    page.find_element(By.ID, "view-tokens").click()


def settle(page: Chrome, **values: Any) -> None:
    """Fill fields of the settings."""
    for name, value in values.items():
        page.execute_script(
            "const field = document.getElementById(arguments[0]); field.value = arguments[1];"
            "field.dispatchEvent(new Event('change', { bubbles: true }))",
            name,
            value,
        )


def act(page: Chrome, what: str, index: int) -> None:
    """Press a button of the message at ``index``."""
    item = page.find_elements(By.CSS_SELECTOR, "#talk > li")[index]
    item.find_element(By.CSS_SELECTOR, f'[data-do="{what}"]').click()


def text_of(page: Chrome | WebElement, selector: str) -> str:
    return page.find_element(By.CSS_SELECTOR, selector).text


def texts(page: Chrome | WebElement, selector: str) -> list[str]:
    return [each.text for each in page.find_elements(By.CSS_SELECTOR, selector)]


def stored(page: Chrome) -> list[dict[str, Any]]:
    """The conversations that the browser keeps."""
    kept: list[str] = page.execute_script(
        "return Object.keys(localStorage).filter((k) => k.startsWith('mlxfill.conversation.'))"
        ".map((k) => localStorage.getItem(k))"
    )
    return [json.loads(text) for text in kept]


def record_requests(page: Chrome) -> Callable[[], list[dict[str, Any]]]:
    """The bodies that the page sends from now on."""
    page.execute_script(
        "window.bodies = []; const send = window.fetch;"
        "window.fetch = (path, options) => {"
        "  if (options.body) window.bodies.push(options.body); return send(path, options); }"
    )
    return lambda: [json.loads(body) for body in page.execute_script("return window.bodies")]


def record_usage(page: Chrome) -> Callable[[], list[dict[str, Any]]]:
    """The counts of the replies that the page reads from now on."""
    page.execute_script(
        "window.answers = []; const ask = window.fetch;"
        "window.fetch = (path, options) => ask(path, options).then((answer) => {"
        "  answer.clone().text().then((text) => window.answers.push(text)); return answer; })"
    )

    def counts() -> list[dict[str, Any]]:
        answers = page.execute_script("return window.answers")
        lines = [line for answer in answers for line in answer.splitlines()]
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        return [chunk["usage"] for chunk in chunks if chunk.get("usage")]

    return counts


def complaints(page: Chrome) -> list[str]:
    """What the browser logged: a refused script or style would be there."""
    log: list[dict[str, Any]] = page.get_log("browser")  # type: ignore[no-untyped-call]
    return [each["message"] for each in log if each["level"] in {"SEVERE", "WARNING"}]


def use_tools(page: Chrome) -> None:
    page.execute_script("document.getElementById('settings').open = true")
    page.find_element(By.ID, "sample-tools").click()


# --- replies as they are read -------------------------------------------------------------


def test_a_reply_is_rendered_with_its_thoughts_folded_away(
    page: Chrome, drafting: Any, script: Any
) -> None:
    script.say(ANSWER, THOUGHT)
    ask(page, "Is it mild?")
    reply = answered(page)
    thoughts = reply.find_element(By.CSS_SELECTOR, "details.reasoning")
    encode = drafting.worker.engine.tokenizer.encode
    counted = len(encode(f"{THOUGHT}\n</think>", add_special_tokens=False))
    assert thoughts.text == f"Thought for {counted} tokens"
    thoughts.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert texts(thoughts, "p") == THOUGHT.split("\n\n")
    said = reply.find_element(By.CSS_SELECTOR, ".said")
    assert texts(said, "h3") == ["Weather"]
    assert texts(said, "strong") == ["mild"]
    link = said.find_element(By.LINK_TEXT, "the map")
    assert link.get_attribute("href") == "https://example.com/map"
    assert "noreferrer" in (link.get_attribute("rel") or "")
    number = said.find_element(By.CSS_SELECTOR, "td.align-right")
    assert (number.text, number.value_of_css_property("text-align")) == ("18", "right")
    code = said.find_element(By.CSS_SELECTOR, ".code")
    assert text_of(code, ".code-bar span") == "python"
    assert texts(code, ".hljs-keyword") == ["def", "return"]
    assert text_of(code, "pre") in ANSWER
    assert "</think>" not in page.find_element(By.ID, "talk").text
    assert not complaints(page)


def test_calls_and_their_results_are_cards(page: Chrome, script: Any) -> None:
    use_tools(page)
    sent, counts = record_requests(page), record_usage(page)
    script.say(CALLS)
    ask(page, "What is the weather in Paris and Rome?")
    reply = answered(page)
    assert texts(reply, ".card-title") == ["Call of get_weather"] * 2
    assert texts(reply, ".card pre") == [
        '{\n  "city": "Paris",\n  "id": 1234567890123456789,\n  "days": []\n}',
        '{\n  "city": "Rome"\n}',
    ]
    assert not reply.find_element(By.CSS_SELECTOR, ".reasoning").is_displayed()
    assert "get_weather, get_weather" in text_of(page, "#note")
    # The model is asked when both calls have a result.
    ask(page, '{"degrees":18}')
    script.say("Paris is mild.")
    ask(page, "rain")
    wait(page, lambda: len(sent()) == 2)
    answered(page, 2)
    assert texts(page, "#talk > .tool pre") == ['{\n  "degrees": 18\n}', "rain"]
    calls = sent()[1]["messages"][1]["tool_calls"]
    results = [(m["tool_call_id"], m["content"]) for m in sent()[1]["messages"][2:]]
    assert results == [(calls[0]["id"], '{"degrees":18}'), (calls[1]["id"], "rain")]
    wait(page, lambda: len(counts()) == 2)
    cached = counts()[1]["prompt_tokens_details"]["cached_tokens"]
    assert text_of(page, "#cached") == str(cached)


def test_a_hostile_reply_does_nothing(page: Chrome, script: Any) -> None:
    script.say(HOSTILE, HOSTILE[:200])
    settle(page, most=1000)
    ask(page, HOSTILE.replace("\n", " "))
    reply = answered(page)
    reply.find_element(By.CSS_SELECTOR, "summary").click()
    talk = page.find_element(By.ID, "talk")
    assert not talk.find_elements(By.CSS_SELECTOR, "script, img, style, iframe, form, [style]")
    assert not talk.find_elements(By.CSS_SELECTOR, "[onerror], [onclick], [id]")
    links = {each.get_attribute("href") for each in talk.find_elements(By.CSS_SELECTOR, "a[href]")}
    assert links == {"https://example.com/pixel.png", "https://example.com/"}
    assert "Image: seen" in text_of(reply, ".said")
    assert "<script>document.title" in text_of(reply, ".said")
    assert not complaints(page)
    # Should something get through all the same, the page's policy is there.
    page.execute_script(
        "addEventListener('securitypolicyviolation', (e) => document.body.dataset.refused ="
        " `${document.body.dataset.refused ?? ''} ${e.effectiveDirective}`);"
        "const image = new Image(); image.src = 'https://example.com/pixel.png';"
        "document.body.append(image);"
        "try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>') } catch {}"
    )
    refused = "return (document.body.dataset.refused ?? '').split(' ').sort().join(' ').trim()"
    wait(page, lambda: page.execute_script(refused) == "img-src require-trusted-types-for")
    assert page.title.startswith("<script>")


# --- tokens and figures -------------------------------------------------------------------


def test_tokens_stream_in_the_colours_of_their_origins(page: Chrome, drafting: Any) -> None:
    use_tools(page)
    see_tokens(page)
    ask(page, "What is the weather in Paris?")
    said = answered(page).find_element(By.CSS_SELECTOR, ".raw")
    tokens = said.find_elements(By.CSS_SELECTOR, ".t")
    origins = {token.get_attribute("data-origin") for token in tokens}
    assert {"sampled", "template"} <= origins
    colours = {
        token.get_attribute("data-origin"): token.value_of_css_property("background-color")
        for token in tokens
    }
    assert len(set(colours.values())) == len(origins)
    # What is shown is what the server wrote, token for token.
    asked = {
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
        "tools": json.loads(page.find_element(By.ID, "tools").get_attribute("value") or ""),
        "temperature": 0,
        "stream": True,
        "mlxfill": {"origins": True},
    }
    with drafting.http() as http:
        lines = http.post("/v1/chat/completions", json=asked).text.splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    written = "".join(chunk["mlxfill"]["text"] for chunk in chunks if "mlxfill" in chunk)
    assert said.get_attribute("textContent") == written
    assert "get_weather" in text_of(page, "#note")
    assert not complaints(page)
    # The switch works for what is there already, both ways.
    page.find_element(By.ID, "view-rendered").click()
    assert texts(page, ".card-title") == ["Call of get_weather"]
    assert not page.find_elements(By.CSS_SELECTOR, ".t[data-origin]")
    see_tokens(page)
    raw = page.find_element(By.CSS_SELECTOR, ".raw")
    assert raw.get_attribute("textContent") == written


def test_figures_and_charts_tell_of_the_reply(page: Chrome) -> None:
    see_tokens(page)
    counts = record_usage(page)
    ask(page, "Repeat after me: one two three four five six seven eight nine ten.")
    tokens = len(answered(page).find_elements(By.CSS_SELECTOR, ".t"))
    wait(page, lambda: text_of(page, "#count") == str(tokens))
    assert float(text_of(page, "#speed")) > 0
    assert float(text_of(page, "#per-forward")) >= 1
    wait(page, lambda: len(counts()) == 1)
    cached = counts()[0]["prompt_tokens_details"]["cached_tokens"]
    assert text_of(page, "#cached") == str(cached)
    label = page.find_element(By.CSS_SELECTOR, "#bursts svg").get_attribute("aria-label") or ""
    bursts = [part.split(" forwards gave ") for part in label.split("; ")]
    assert sum(int(n) * int(size.split()[0]) for n, size in bursts) == tokens
    shares = texts(page, "#legend .share")
    assert sum(int(share.split(" · ")[0]) for share in shares) == tokens
    drafts = page.find_element(By.CSS_SELECTOR, "#positions svg").get_attribute("aria-label")
    assert "position 1:" in (drafts or "")


def test_one_origin_can_be_picked_with_the_keyboard(page: Chrome) -> None:
    use_tools(page)
    ask(page, "What is the weather in Paris?")
    # The reply is still written: the button stays the same one until the end, and in the next.
    button = wait(page, lambda: page.find_elements(By.CSS_SELECTOR, '[data-pick="template"]'))[0]
    button.send_keys(Keys.ENTER)  # shows the tokens
    answered(page)
    dimmed = page.find_elements(By.CSS_SELECTOR, ".t.out")
    assert dimmed
    assert all(token.get_attribute("data-origin") != "template" for token in dimmed)
    page.execute_script(
        "document.getElementById('text').value = '18 degrees and sunny';"
        "document.getElementById('ask').requestSubmit()"
    )
    tokens = answered(page, 2).find_elements(By.CSS_SELECTOR, ".t")
    assert page.switch_to.active_element == button
    mine = [token for token in tokens if token.get_attribute("data-origin") == "template"]
    assert button.find_element(By.CSS_SELECTOR, ".share").text.startswith(f"{len(mine)} · ")
    assert button.get_attribute("aria-pressed") == "true"
    button.send_keys(Keys.ENTER)
    assert button.get_attribute("aria-pressed") == "false"
    assert not page.find_elements(By.CSS_SELECTOR, ".t.out")


# --- stopping and errors ------------------------------------------------------------------


def test_a_reply_that_is_stopped_stays_and_frees_its_row(
    page: Chrome, drafting: Any, script: Any
) -> None:
    script.say("on and " * 3000)
    settle(page, most=4000)
    ask(page, "Tell me everything.")
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, ".said .block"))
    page.find_element(By.ID, "text").send_keys(Keys.ESCAPE)
    reply = answered(page)
    assert text_of(reply, ".ended") == "Stopped."
    assert drafting.idle()
    # Another conversation ends it as well, and knows nothing of it.
    act(page, "again", 1)
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, ".said .block"))
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.ALT, "n")
    assert drafting.idle()
    assert texts(page, "#talk > li") == [text_of(page, "#talk > .empty")]
    script.say("Hi.")
    sent = record_requests(page)
    ask(page, "Hello")
    answered(page)
    assert [message["role"] for message in sent()[0]["messages"]] == ["user"]
    kept = {each["messages"][0]["content"]: each["messages"] for each in stored(page)}
    assert kept["Tell me everything."][1]["content"].startswith("on and on")
    assert len(kept["Hello"]) == 2


def test_what_fails_is_told_and_gives_the_message_back(page: Chrome, script: Any) -> None:
    script.say("Hi.")
    settle(page, most=-7)
    ask(page, "Hello")
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, "#talk > .failed"))
    assert "max_tokens" in text_of(page, ".failed")
    box = page.find_element(By.ID, "text")
    assert box.get_attribute("value") == "Hello"
    settle(page, most=50)
    sent = record_requests(page)
    box.send_keys(Keys.ENTER)
    assert text_of(answered(page), ".said") == "Hi."
    assert not page.find_elements(By.CSS_SELECTOR, "#talk > .failed")
    assert sent()[0]["messages"] == [{"role": "user", "content": "Hello"}]
    settle(page, tools="[oops")
    ask(page, "Again")
    wait(page, lambda: "no JSON" in text_of(page, "#note"))
    settle(page, tools="")
    page.execute_script("window.fetch = () => Promise.reject(new TypeError('x'))")
    box.send_keys(Keys.ENTER)
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, "#talk > .failed"))
    assert text_of(page, ".failed") == "The server does not answer."
    assert box.get_attribute("value") == "Again"
    # A reply that was to be replaced is still there; what came of one that breaks off stays.
    act(page, "again", 1)
    wait(page, lambda: text_of(page, "#send") == "Send")
    assert text_of(page, ".assistant .said") == "Hi."
    page.execute_script(BREAKING)
    act(page, "again", 1)
    assert text_of(answered(page), ".said") == "Half"
    assert text_of(page, ".assistant .failed") == "The connection to the server broke off."


def test_a_key_is_asked_for_and_lasts_as_long_as_the_tab(browser: Chrome, serve_tiny: Any) -> None:
    with serve_tiny(api_key="secret") as running:
        page = fresh(browser, running.url)
        wait(page, lambda: "asks for an API key" in text_of(page, "#talk"))
        page.find_element(By.CSS_SELECTOR, '[data-do="key"]').click()
        assert page.switch_to.active_element == page.find_element(By.ID, "key")
        page.switch_to.active_element.send_keys("secret", Keys.TAB)
        wait(page, lambda: page.find_elements(By.CSS_SELECTOR, "#model option"))
        assert not page.find_elements(By.CSS_SELECTOR, "#talk > .failed")
        settle(page, most=5)
        page.refresh()
        wait(page, lambda: page.find_elements(By.CSS_SELECTOR, "#model option"))
        ask(page, "Hello")
        assert "most tokens" in text_of(answered(page), ".ended")
        assert "secret" not in page.execute_script("return JSON.stringify(localStorage)")
        browser.get("about:blank")  # no connection is left for the server to wait for


# --- conversations ------------------------------------------------------------------------


def test_conversations_survive_a_reload(page: Chrome, drafting: Any, script: Any) -> None:
    script.say("Blue.", THOUGHT)
    page.find_element(By.CSS_SELECTOR, "#system summary").click()
    page.find_element(By.ID, "system-text").send_keys("Be brief.")
    sent = record_requests(page)
    ask(page, "Which colour?")
    answered(page)
    assert sent()[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    page.find_element(By.ID, "fresh").click()
    script.say("Seven.")
    ask(page, "Which number?")
    answered(page)
    assert texts(page, "#conversations .open") == ["Which number?", "Which colour?"]
    page.find_elements(By.CSS_SELECTOR, "#conversations .open")[1].click()
    before = page.find_element(By.ID, "talk").text
    assert "Blue." in before
    figures = page.find_element(By.ID, "figures").text
    page.refresh()
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, "#model option"))
    assert page.find_element(By.ID, "talk").text == before
    assert page.find_element(By.ID, "figures").text == figures
    system = page.find_element(By.ID, "system-text")
    assert system.get_attribute("value") == "Be brief."
    see_tokens(page)
    raw = page.find_element(By.CSS_SELECTOR, ".raw").get_attribute("textContent") or ""
    assert raw.startswith(THOUGHT)
    page.find_elements(By.CSS_SELECTOR, "#conversations .rename")[1].click()
    page.switch_to.active_element.send_keys("Colours", Keys.ENTER)
    assert page.switch_to.active_element.text == "Colours"
    # With the keyboard alone: from the other conversation over "rename" to "delete".
    page.find_elements(By.CSS_SELECTOR, "#conversations .open")[0].send_keys(Keys.TAB)
    page.switch_to.active_element.send_keys(Keys.TAB)
    page.switch_to.active_element.send_keys(Keys.ENTER)
    page.switch_to.alert.accept()
    visit(page, drafting.url)
    assert texts(page, "#conversations .open") == ["Colours"]
    assert texts(page, "#talk .user .said") == ["Which colour?"]
    sent = record_requests(page)
    ask(page, "And now?")
    answered(page, 2)
    assert [m["role"] for m in sent()[0]["messages"]] == ["system", "user", "assistant", "user"]
    assert sent()[0]["messages"][2]["reasoning_content"].strip() == THOUGHT


def test_a_message_can_be_changed_and_a_reply_written_anew(page: Chrome, script: Any) -> None:
    sent = record_requests(page)
    script.say("One.")
    ask(page, "First")
    answered(page)
    ask(page, "Second")
    answered(page, 2)
    script.say("Two.")
    act(page, "again", 3)
    wait(page, lambda: len(sent()) == 3)
    answered(page, 2)
    assert texts(page, ".assistant .said") == ["One.", "Two."]
    assert sent()[2]["messages"] == sent()[1]["messages"]
    # Escape leaves the message as it was, Enter sends it; what followed it goes.
    act(page, "edit", 0)
    page.switch_to.active_element.send_keys(" thing", Keys.ESCAPE)
    assert texts(page, "#talk .user .said") == ["First", "Second"]
    act(page, "edit", 0)
    page.switch_to.active_element.send_keys(" of all", Keys.ENTER)
    wait(page, lambda: len(sent()) == 4)
    answered(page)
    assert texts(page, "#talk .said") == ["First of all", "Two."]
    assert sent()[3]["messages"] == [{"role": "user", "content": "First of all"}]
    assert [len(each["messages"]) for each in stored(page)] == [2]


def test_messages_and_code_are_copied(page: Chrome, script: Any) -> None:
    allowed = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    page.execute_cdp_cmd("Browser.grantPermissions", allowed)
    script.say(ANSWER)
    ask(page, "Is it mild?")
    answered(page)
    read = "navigator.clipboard.readText().then(arguments[0])"
    act(page, "copy", 1)
    wait(page, lambda: "Copied" in texts(page, '[data-do="copy"]'))
    assert page.execute_async_script(read) == ANSWER
    # Where browsers offer no clipboard, as without HTTPS, it works all the same.
    page.execute_script("navigator.clipboard.writeText = () => Promise.reject(new Error())")
    page.find_element(By.CSS_SELECTOR, '[data-do="copy-code"]').click()
    wait(page, lambda: "Copied" in texts(page, '[data-do="copy-code"]'))
    code = ANSWER.partition("```python\n")[2].partition("```")[0]
    assert page.execute_async_script(read) == code


def test_storage_that_is_full_or_broken_does_no_harm(
    page: Chrome, drafting: Any, script: Any
) -> None:
    script.say("Kept.")
    ask(page, "First")
    answered(page)
    # Broken entries are passed over, one that was cut off in the middle of a call is mended.
    cut = stored(page)[0]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a'}}
    broken = {"tokens": [["sampled", 1, "x"]], "tool_calls": [call], "content": "half"}
    cut |= {"id": "cut", "updated": cut["updated"] + 1}
    cut["messages"][1] = {"role": "assistant", **broken}
    for name, value in (("cut", json.dumps(cut)), ("odd", "{"), ("odder", '{"id": "odder"}')):
        place = f"mlxfill.conversation.{name}"
        page.execute_script("localStorage.setItem(...arguments)", place, value)
    visit(page, drafting.url)
    assert texts(page, "#conversations .open") == ["First", "First"]
    assert texts(page, ".assistant .ended") == ["Stopped."]
    for name in ("odd", "odder"):
        page.execute_script("localStorage.removeItem(arguments[0])", f"mlxfill.conversation.{name}")
    # Old tokens make room; when even that is not enough, the page says so.
    page.execute_script("localStorage.setItem('other', 'x'.repeat(4 << 20))")
    fill = "for (let n = 1 << 20; n >= 1; n >>= 2) { try { for (let i = 0; ; i += 1)"
    fill += " localStorage.setItem(`more${n}.${i}`, 'x'.repeat(n)) } catch {} }"
    page.execute_script(fill)
    page.find_element(By.ID, "fresh").click()
    ask(page, "Second")
    answered(page)
    first = next(each for each in stored(page) if each["id"] == "cut")
    assert (first["messages"][1]["tokens"], first["messages"][1]["content"]) == ([], "half")
    page.execute_script(fill)
    ask(page, "Third " * 40)
    wait(page, lambda: "will not survive a reload" in text_of(page, "#note"))
    assert text_of(answered(page, 2), ".said") == "Kept."


# --- screens and people -------------------------------------------------------------------


@contextmanager
def emulating(page: Chrome, command: str, **settings: Any) -> Iterator[None]:
    """A screen or a preference of the user."""
    page.execute_cdp_cmd(f"Emulation.set{command}", settings)
    try:
        yield
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_nothing_is_cut_off_on_any_screen(page: Chrome, script: Any) -> None:
    script.say(f"{ANSWER}\n```\n{'long ' * 30}\n```\n{'x' * 100}")
    ask(page, "Hello")
    answered(page)
    for width in (320, 768, 1200):
        screen = {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": width < 500}
        with emulating(page, "DeviceMetricsOverride", **screen):
            for box in ("documentElement", "querySelector('#talk')"):
                beyond = f"const box = document.{box}; return box.scrollWidth - box.clientWidth"
                assert page.execute_script(beyond) == 0
            # What has no room waits in a drawer.
            for button, drawer in (("open-side", "conversations"), ("open-pane", "legend")):
                opener = page.find_element(By.ID, button)
                content = page.find_element(By.ID, drawer)
                assert content.is_displayed() != opener.is_displayed()
                if opener.is_displayed():
                    opener.send_keys(Keys.ENTER)
                    assert content.is_displayed()
                    opener.send_keys(Keys.ESCAPE)
                    assert not content.is_displayed()


CONTRAST = """
const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255;
  return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
  return .2126 * r + .7152 * g + .0722 * b; };
const rgba = (text) => { const v = text.match(/[\\d.]+/g).map(Number);
  return v.length > 3 ? v : [...v, 1]; };
const under = (e) => { for (; e; e = e.parentElement) {
  const c = rgba(getComputedStyle(e).backgroundColor); if (c[3]) return c.slice(0, 3); }
  return [255, 255, 255]; };
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  const e = node.parentElement;
  const isSeen = node.data.trim() && e.checkVisibility({ opacityProperty: true });
  if (!isSeen || e.closest('svg')) continue;
  const [a, b] = [light(rgba(getComputedStyle(e).color).slice(0, 3)), light(under(e))];
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < 4.5) found.push(`${e.className} ${node.data.trim().slice(0, 20)} ${ratio}`);
}
return found;
"""


def test_everything_has_a_name_and_can_be_read(page: Chrome, script: Any) -> None:
    use_tools(page)
    script.say(f"{ANSWER}\n{CALLS}", THOUGHT)
    ask(page, "Is it mild?")
    answered(page).find_element(By.CSS_SELECTOR, "summary").click()
    tree = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    needing = {"button", "textbox", "spinbutton", "checkbox", "radio", "combobox", "region"}
    nameless = [
        node["role"]["value"]
        for node in tree
        if not node["ignored"]
        and node["role"]["value"] in needing
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []
    for scheme in ("light", "dark"):
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        with emulating(page, "EmulatedMedia", features=preferred):
            for view in ("view-tokens", "view-rendered"):
                page.find_element(By.ID, view).click()
                assert page.execute_script(CONTRAST) == []
