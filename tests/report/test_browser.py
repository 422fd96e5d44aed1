"""The report in a real browser: opened from disk, used by keyboard, read from the
DOM.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import MultilabelCalibrator, evaluate, make
from tests.calibrators.test_multilabel import tags
from tests.conftest import synthetic_logits

pytest.importorskip("selenium", reason="selenium is not installed")

from selenium.webdriver import Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

pytestmark = pytest.mark.slow

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)
HOSTILE = '</script><img src=x onerror="document.title=1">&<!--'

#: The lowest contrast between any visible text and the ground it stands on (WCAG 2).
CONTRAST = """
const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const rgba = (text) => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
function ground(node) {
  for (; node; node = node.parentElement) {
    const color = rgba(getComputedStyle(node).backgroundColor);
    if (color.length === 3 || color[3] === 1) return color;
  }
  return [255, 255, 255];
}
const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
const texts = [...document.querySelectorAll("body *")].filter((node) =>
  node.checkVisibility() && [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
return Math.min(...texts.map((node) => {
  const style = getComputedStyle(node);
  const ink = node instanceof SVGElement ? style.fill : style.color;
  return ratio(light(rgba(ink)), light(ground(node)));
}));
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = ChromeOptions()
    options.binary_location = program
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    chrome = Chrome(options=options, service=Service(driver))
    yield chrome
    chrome.quit()


@pytest.fixture
def opened(browser: Chrome, comparison: Any, tmp_path: Path) -> Iterator[Chrome]:
    yield open_report(browser, comparison, tmp_path)
    assert (
        browser.get_log("browser") == []
    )  # no errors, no refusals by the page's own policy
    assert fetched(browser) == [browser.current_url]


def open_report(browser: Chrome, comparison: Any, folder: Path) -> Chrome:
    for log in ("browser", "performance"):
        browser.get_log(log)  # forget the last page's
    browser.get(comparison.to_html(folder / "report.html").as_uri())
    return browser


def fetched(browser: Chrome) -> list[str]:
    """Every address the page asked for; the browser's own start page asks for
    others.
    """
    events = [
        json.loads(entry["message"])["message"]
        for entry in browser.get_log("performance")
    ]
    sent = [event for event in events if event["method"] == "Network.requestWillBeSent"]
    asked = [
        (event["params"]["documentURL"], event["params"]["request"]["url"])
        for event in sent
    ]
    return [address for document, address in asked if document == browser.current_url]


def emulate(browser: Chrome, width: int, scheme: str) -> None:
    size = {
        "width": width,
        "height": 900,
        "deviceScaleFactor": 1,
        "mobile": width < 600,
    }
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def tab_to(browser: Chrome, element_id: str) -> Any:
    """Press Tab until the element has the focus, as someone without a mouse would."""
    for _ in range(30):
        focused = browser.switch_to.active_element
        if focused.get_attribute("id") == element_id:
            return focused
        focused.send_keys(Keys.TAB)
    raise AssertionError(f"Tab never reached #{element_id}")


def shown(browser: Chrome, figure: str) -> dict[str, Any]:
    """What a diagram shows: its caption, and the height of each bar."""
    heights = browser.execute_script(
        "return [...document.querySelectorAll(`#${arguments[0]} .bar`)]"
        ".map((bar) => Number(bar.getAttribute('height')))",
        figure,
    )
    caption = browser.find_element(By.CSS_SELECTOR, f"#{figure} figcaption").text
    return {"caption": caption, "heights": heights}


def expected_heights(
    data: dict[str, Any], name: str, n_bins: int, scheme: str
) -> list[float]:
    method = next(method for method in data["methods"] if method["name"] == name)
    bins = method["reliability"][scheme][str(n_bins)]
    return [230 * share for share in bins["accuracy"]]


def test_diagrams_follow_the_keyboard(
    opened: Chrome, comparison: Any, report_data: Any
) -> None:
    data = report_data(comparison)
    start = shown(opened, "after")
    assert start["heights"] == pytest.approx(
        expected_heights(data, "hoki", 15, "width")
    )
    tab_to(opened, "method").send_keys(Keys.ARROW_UP)  # from hoki to vecs
    tab_to(opened, "bins").send_keys(Keys.ARROW_DOWN)  # from 15 to 20
    after, before = shown(opened, "after"), shown(opened, "before")
    assert after["caption"].startswith("After Vector scaling (vecs)")
    assert "20 bins of equal width" in after["caption"]
    assert after["heights"] == pytest.approx(
        expected_heights(data, "vecs", 20, "width")
    )
    expected = expected_heights(data, "uncalibrated", 20, "width")
    assert before["heights"] == pytest.approx(expected)
    opened.switch_to.active_element.send_keys(Keys.TAB)
    opened.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)  # from width to mass
    after = shown(opened, "after")
    assert after["heights"] == pytest.approx(expected_heights(data, "vecs", 20, "mass"))
    said = opened.find_element(By.ID, "status").get_attribute("textContent")
    assert said.startswith("Vector scaling (vecs): confidence")
    row = opened.find_element(By.CSS_SELECTOR, "[aria-current] th").text
    assert row.startswith("Vector scaling (vecs)")
    assert "(vecs)" in opened.find_element(By.CSS_SELECTOR, "#risk .legend").text
    caption = opened.find_element(By.CSS_SELECTOR, "#classes-verdict").text
    assert caption.startswith("Vector scaling (vecs): ")
    classes = next(m for m in data["methods"] if m["name"] == "vecs")["classes"]["rows"]
    rows = opened.find_elements(By.CSS_SELECTOR, "#classes tbody tr")
    expected = [
        f"{r['name']} {r['n']:,} {r['predicted']:.1%} {r['observed']:.1%} "
        f"{r['low']:.1%} to {r['high']:.1%}"
        for r in classes
    ]
    assert [row.text.removesuffix(" miscalibrated") for row in rows] == expected


def test_sliders_give_the_numbers(
    opened: Chrome, comparison: Any, report_data: Any
) -> None:
    hoki = report_data(comparison)["methods"][-1]
    bins = hoki["reliability"]["width"]["15"]
    slider = opened.find_element(By.ID, "look-after")
    slider.send_keys(Keys.HOME)
    text = opened.find_element(By.CSS_SELECTOR, "#after output").text
    assert f"{bins['count'][0]:,} examples" in text
    assert f"accuracy {bins['accuracy'][0]:.1%}" in text
    assert slider.get_attribute("aria-valuetext") == text
    slider = opened.find_element(By.ID, "look-risk")
    slider.send_keys(Keys.END)
    text = opened.find_element(By.CSS_SELECTOR, "#risk output").text
    assert (
        "Hoki (hoki): the most confident 100.0%, at "
        f"{hoki['risk']['threshold'][-1]:.3f}" in text
    )
    assert f"{hoki['risk']['risk'][-1]:.1%} of them wrong" in text


def test_the_pointer_gives_the_numbers(opened: Chrome) -> None:
    opened.execute_script("""
        const picture = document.querySelector("#before svg");
        const box = picture.getBoundingClientRect();
        const at = { clientX: box.left + 1, clientY: box.top + 50 };
        picture.dispatchEvent(new PointerEvent("pointermove", at));
    """)
    slider = opened.find_element(By.ID, "look-before")
    assert slider.get_attribute("value") == "0"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_can_be_read(
    browser: Chrome, comparison: Any, tmp_path: Path, width: int, scheme: str
) -> None:
    emulate(browser, width, scheme)
    open_report(browser, comparison, tmp_path)
    page = "document.documentElement"
    assert browser.execute_script(f"return {page}.scrollWidth <= {page}.clientWidth")
    assert browser.execute_script(CONTRAST) >= 4.5
    drawn = browser.execute_script(
        "return document.querySelector('#after svg').viewBox.baseVal.width"
    )
    assert 150 < drawn <= width / (1 if width > 600 else 2)
    unnamed = browser.execute_script(
        "return [...document.querySelectorAll('svg')].filter((s) => "
        "!s.ariaLabel).length"
    )
    assert unnamed == 0


def test_names_and_verdicts_leave_room_on_a_phone(
    browser: Chrome, tmp_path: Path
) -> None:
    emulate(browser, 360, "light")
    found = evaluate(
        None, *synthetic_logits(600, 3, seed=1), coverage=0.9, data_name="july.csv"
    )
    open_report(browser, found, tmp_path)
    assert browser.title == "Calibration report: july.csv"
    widths = browser.execute_script(
        "return [...document.querySelectorAll('.methods th[scope=row]')].map((c) => "
        "c.offsetWidth)"
    )
    assert len(widths) == 2  # of the methods, and of the sets
    assert max(widths) < 180
    ends = browser.execute_script(
        "return [...document.querySelectorAll('p')].map((p) => "
        "p.getBoundingClientRect().right)"
    )
    assert max(ends) <= 360


def test_pictures_follow_the_width_of_the_window(opened: Chrome) -> None:
    emulate(opened, 1280, "light")
    emulate(opened, 390, "light")
    opened.execute_async_script(
        "requestAnimationFrame(() => setTimeout(arguments[0], 50))"
    )
    drawn = opened.execute_script(
        "return document.querySelector('#after svg').viewBox.baseVal.width"
    )
    assert drawn < 390 / 2


def test_it_prints_on_paper(browser: Chrome, comparison: Any, tmp_path: Path) -> None:
    """A4 with margins of 12 mm is 703 pixels wide; diagrams were drawn for a screen."""
    emulate(browser, 1280, "dark")
    open_report(browser, comparison, tmp_path)
    options = {"preferCSSPageSize": True}
    printed = base64.b64decode(
        browser.execute_cdp_cmd("Page.printToPDF", options)["data"]
    )
    assert printed.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 5
    paper = {"media": "print", "features": []}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", paper)
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 703, "height": 1000, "deviceScaleFactor": 1, "mobile": False},
    )
    page = "document.documentElement"
    assert browser.execute_script(f"return {page}.scrollWidth <= {page}.clientWidth")
    assert browser.execute_script(CONTRAST) >= 4.5
    ground = browser.execute_script(
        "return getComputedStyle(document.body).backgroundColor"
    )
    assert ground == "rgb(255, 255, 255)"
    assert not browser.find_element(By.ID, "controls").is_displayed()
    emulate(browser, 1280, "light")


@pytest.mark.parametrize(("width", "height"), [(360, 640), (800, 640), (1300, 640)])
def test_verdict_and_diagrams_are_on_the_first_screen(
    browser: Chrome, comparison: Any, tmp_path: Path, width: int, height: int
) -> None:
    emulate(browser, width, "light")
    open_report(browser, comparison, tmp_path)
    ends = browser.execute_script(
        "return [...document.querySelectorAll('#pair svg')].map((s) => "
        "s.getBoundingClientRect())"
    )
    assert len(ends) == 2
    assert max(end["bottom"] for end in ends) <= height
    assert max(end["right"] for end in ends) <= width
    heading = browser.find_element(By.TAG_NAME, "h1").text
    assert heading == comparison["hoki"].verdict


def test_a_hostile_name_is_only_a_name(
    browser: Chrome, comparison: Any, tmp_path: Path
) -> None:
    odd = replace(comparison["temps"], name=HOSTILE)
    rows = tuple(replace(row, name=HOSTILE) for row in odd.classes.rows)
    odd = replace(odd, classes=replace(odd.classes, rows=rows))
    results = (comparison["uncalibrated"], odd)
    altered = replace(comparison, results=results, subject=HOSTILE)
    open_report(browser, altered, tmp_path)
    classes = browser.find_elements(By.CSS_SELECTOR, "#classes tbody th")
    assert {cell.text for cell in classes} == {HOSTILE}
    assert browser.title == "Calibration report"
    heading = browser.find_element(By.CSS_SELECTOR, "#after h3").text
    assert heading == f"After Temperature scaling ({HOSTILE})"
    assert browser.get_log("browser") == []


def test_one_method_alone(browser: Chrome, comparison: Any, tmp_path: Path) -> None:
    alone = replace(comparison, results=(comparison["temps"],), subject="temps")
    open_report(browser, alone, tmp_path)
    assert browser.find_elements(By.ID, "before") == []
    assert len(shown(browser, "after")["heights"]) > 0
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("n_classes", [2, 10])
def test_an_uncalibrated_model_alone(
    browser: Chrome, tmp_path: Path, n_classes: int
) -> None:
    """One diagram, not the same one twice, and no choice among one method."""
    logits, labels = synthetic_logits(600, n_classes, seed=1)
    open_report(browser, evaluate(None, logits, labels), tmp_path)
    pair = "event-pair" if n_classes == 2 else "pair"
    assert len(browser.find_elements(By.CSS_SELECTOR, f"#{pair} svg")) == 1
    heading = browser.find_element(By.CSS_SELECTOR, f"#{pair} h3").text
    assert heading == "Before calibration"
    assert not browser.find_element(By.ID, "method").is_displayed()
    assert browser.get_log("browser") == []


def test_a_page_without_classes_hides_what_it_has_not(
    browser: Chrome, tmp_path: Path
) -> None:
    cal = MultilabelCalibrator().fit(*tags(300))
    path = evaluate(cal, *tags(300, 1)).to_html(tmp_path / "report.html")
    browser.get(path.as_uri())
    shown = [
        each.text
        for each in browser.find_elements(By.TAG_NAME, "h2")
        if each.is_displayed()
    ]
    assert "Which labels are miscalibrated?" in shown
    assert not {"Class by class", "What if it may abstain?"} & set(shown)
    assert len(browser.find_elements(By.CSS_SELECTOR, "#pair svg")) == 2


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_two_classes_show_the_event(
    browser: Chrome, tmp_path: Path, width: int, scheme: str
) -> None:
    """All diagrams are drawn, none is wider than the page, and text is readable."""
    rng = np.random.default_rng(0)
    scores = rng.normal(-1.5, 1.2, 2000)
    event = rng.uniform(size=2000) < 1.0 / (1.0 + np.exp(-scores - 0.5))
    data = np.column_stack([np.zeros(2000), scores]), event.astype(int)
    emulate(browser, width, scheme)
    cal = make("platt").fit(data[0][:800], data[1][:800])
    open_report(browser, evaluate(cal, data[0][800:], data[1][800:]), tmp_path)
    for name in ("event-before", "event-after", "event-distribution", "event-decision"):
        assert browser.find_elements(By.CSS_SELECTOR, f"#{name} svg"), name
    assert len(browser.find_elements(By.CSS_SELECTOR, "#bands tbody tr")) == 10
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    assert browser.execute_script(CONTRAST) >= 4.5
    assert browser.get_log("browser") == []
