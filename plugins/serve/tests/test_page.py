"""The page at ``/`` in a real browser (Debian: ``apt install chromium chromium-driver``)."""

from __future__ import annotations

import json
import os
import shutil
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
)


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
def drafting(serve_tiny: Any, load_tiny: Any) -> Iterator[Any]:
    """A server with a drafter, so that every origin can occur."""
    with serve_tiny(lambda: load_tiny(plugins=None, draft="tiny-mtp"), rows=2) as running:
        yield running


@pytest.fixture
def page(browser: Chrome, drafting: Any) -> Chrome:
    browser.get(drafting.url)
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "#model option"))
    complaints(browser)  # those of the page before
    return browser


def wait(browser: Chrome, condition: Callable[[], Any], seconds: float = 30) -> Any:
    return WebDriverWait(browser, seconds, poll_frequency=0.05).until(lambda _: condition())


def ask(page: Chrome, text: str) -> None:
    page.find_element(By.ID, "text").send_keys(text, Keys.ENTER)


def answered(page: Chrome, number: int = 1) -> WebElement:
    """The reply with that number, when it has ended and the figures and charts tell of it."""

    def ended() -> WebElement | None:
        replies = page.find_elements(By.CSS_SELECTOR, "#talk .assistant .said")
        idle = page.find_element(By.ID, "send").text == "Send"
        return replies[number - 1] if len(replies) >= number and idle else None

    found: WebElement = wait(page, ended)
    # The page draws in the next frame: what is asked for here comes after it in that frame.
    page.execute_async_script("requestAnimationFrame(arguments[0])")
    return found


def text_of(page: Chrome, selector: str) -> str:
    return page.find_element(By.CSS_SELECTOR, selector).text


def complaints(page: Chrome) -> list[str]:
    """What the browser logged: a refused script or style would be there."""
    log: list[dict[str, Any]] = page.get_log("browser")  # type: ignore[no-untyped-call]
    return [each["message"] for each in log if each["level"] in {"SEVERE", "WARNING"}]


def use_tools(page: Chrome) -> None:
    page.execute_script("document.querySelector('details').open = true")
    page.find_element(By.ID, "sample-tools").click()


def test_tokens_stream_in_the_colours_of_their_origins(page: Chrome, drafting: Any) -> None:
    use_tools(page)
    ask(page, "What is the weather in Paris?")
    said = answered(page)
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


def test_figures_and_charts_tell_of_the_reply(page: Chrome) -> None:
    ask(page, "Repeat after me: one two three four five six seven eight nine ten.")
    tokens = len(answered(page).find_elements(By.CSS_SELECTOR, ".t"))
    wait(page, lambda: text_of(page, "#count") == str(tokens))
    assert float(text_of(page, "#speed")) > 0
    assert float(text_of(page, "#per-forward")) >= 1
    assert int(text_of(page, "#cached")) >= 0
    label = page.find_element(By.CSS_SELECTOR, "#bursts svg").get_attribute("aria-label") or ""
    bursts = [part.split(" forwards gave ") for part in label.split("; ")]
    assert sum(int(n) * int(size.split()[0]) for n, size in bursts) == tokens
    shares = [each.text for each in page.find_elements(By.CSS_SELECTOR, "#legend .share")]
    assert sum(int(share.split(" · ")[0]) for share in shares) == tokens
    drafts = page.find_element(By.CSS_SELECTOR, "#positions svg").get_attribute("aria-label")
    assert "position 1:" in (drafts or "")


def test_one_origin_can_be_picked_with_the_keyboard(page: Chrome) -> None:
    use_tools(page)
    ask(page, "What is the weather in Paris?")
    # The reply is still written: the button stays the same one until the end, and in the next.
    button = wait(page, lambda: page.find_elements(By.CSS_SELECTOR, '[data-pick="template"]'))[0]
    button.send_keys(Keys.ENTER)
    answered(page)
    dimmed = page.find_elements(By.CSS_SELECTOR, ".t.out")
    assert dimmed
    assert all(token.get_attribute("data-origin") != "template" for token in dimmed)
    page.execute_script("ask('18 degrees and sunny')")
    tokens = answered(page, 2).find_elements(By.CSS_SELECTOR, ".t")
    assert page.switch_to.active_element == button
    mine = [token for token in tokens if token.get_attribute("data-origin") == "template"]
    assert button.find_element(By.CSS_SELECTOR, ".share").text.startswith(f"{len(mine)} · ")
    assert button.get_attribute("aria-pressed") == "true"
    button.send_keys(Keys.ENTER)
    assert button.get_attribute("aria-pressed") == "false"
    assert not page.find_elements(By.CSS_SELECTOR, ".t.out")


def test_a_tool_is_answered_and_the_talk_goes_on(page: Chrome) -> None:
    use_tools(page)
    ask(page, "What is the weather in Paris?")
    answered(page)
    ask(page, "18 degrees and sunny")
    answered(page, 2)
    assert [
        each.get_attribute("class") for each in page.find_elements(By.CSS_SELECTOR, "#talk li")
    ] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert not page.find_elements(By.CSS_SELECTOR, ".failed")
    assert int(text_of(page, "#cached")) > 0
    page.find_element(By.ID, "fresh").click()
    assert not page.find_elements(By.CSS_SELECTOR, "#talk .assistant")


def test_escape_stops_a_reply_and_frees_its_row(page: Chrome, drafting: Any) -> None:
    page.execute_script("document.getElementById('most').value = 4000")
    page.execute_script("document.getElementById('temperature').value = 1.8")
    ask(page, "Tell me everything.")
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, ".assistant .t"))
    page.find_element(By.ID, "text").send_keys(Keys.ESCAPE)
    wait(page, lambda: text_of(page, "#send") == "Send")
    assert drafting.idle()


def test_a_new_chat_knows_nothing_of_the_reply_that_was_still_written(
    page: Chrome, drafting: Any
) -> None:
    page.execute_script("document.getElementById('most').value = 4000")
    page.execute_script("document.getElementById('temperature').value = 1.8")
    ask(page, "Tell me everything.")
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, ".assistant .t"))
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.ALT, "n")
    assert drafting.idle()
    assert page.execute_script("return messages.length") == 0
    page.execute_script("document.getElementById('most').value = 5")
    ask(page, "Hello")
    answered(page)
    assert page.execute_script("return messages.map((m) => m.role)") == ["user", "assistant"]
    assert len(page.find_elements(By.CSS_SELECTOR, "#talk li")) == 2


def test_a_server_that_is_gone_is_told(page: Chrome) -> None:
    page.execute_script("window.fetch = () => Promise.reject(new TypeError('x'))")
    ask(page, "Hello")
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, ".failed"))
    assert text_of(page, ".failed") == "The server does not answer."


def test_what_the_server_refuses_is_said_in_one_line(page: Chrome) -> None:
    page.execute_script("document.getElementById('most').value = -7")
    ask(page, "Hello")
    answered(page)
    assert "max_tokens" in text_of(page, ".failed")
    # The message is there again, to be sent once more; the server never hears of the first.
    box = page.find_element(By.ID, "text")
    assert box.get_attribute("value") == "Hello"
    page.execute_script("document.getElementById('most').value = 5")
    box.send_keys(Keys.ENTER)
    answered(page, 2)
    assert page.execute_script("return messages.map((m) => m.role)") == ["user", "assistant"]
    page.execute_script("document.getElementById('tools').value = '[oops'")
    ask(page, "Hello again")
    wait(page, lambda: "no JSON" in text_of(page, "#note"))


def test_text_of_a_model_is_text(page: Chrome) -> None:
    ask(page, "<img src=x onerror=alert(1)><script>alert(2)</script>")
    answered(page)
    assert not page.find_elements(By.CSS_SELECTOR, "#talk img, #talk script")
    assert "<img src=x" in text_of(page, "#talk .user")
    assert not complaints(page)


@pytest.mark.parametrize("width", [320, 768, 1200])
def test_nothing_is_cut_off_on_any_screen(page: Chrome, width: int) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    try:
        ask(page, "Hello")
        answered(page)
        wide: int = page.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
