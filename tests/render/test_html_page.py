"""Tests the HTML page: what it holds, its size, that it asks for nothing, and that no field of a record acts in it.

Chromium, where it is installed, opens the page: charts, filters, sorting, phone, print, and scripts off.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import PROGRAM, Browser
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_process import run_ledger
from samples import (
    COUNTERS,
    MS,
    failed,
    make_book,
    make_forecast,
    make_measurement,
    make_sealed,
    make_timing,
    make_view,
)
from shared_cases import shared_case

from ledger.analysis.book import Book
from ledger.records import Finding
from ledger.render.html_page import html

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "ledger" / "render" / "assets"
# Of echarts 6.1.0 as its authors publish it: dist/echarts.common.min.js of the npm package.
ECHARTS_SHA256 = "61f13280aba3161f77fc801bf5f9c786f55f10432153a0683fc5cc0700b013d5"
PLANTED = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<a href='javascript:document.title=1'>x</a> \u202e &amp; {a|b}"
)


def book(cells: int = 6, planted: str = "") -> Book:
    """Return measured cells of two kernels and gaps from 0 on, a failed and an open cell; `planted` in every text."""
    views = []
    for number in range(cells):
        forecast = make_forecast(
            shape={"B": number + 1, "H": 64, "O": 64}, percent_milli=50_000, low_milli=45_000, high_milli=55_000,
            probabilities_ppm={"hbm-bound": 900_000, "l2-bound": 100_000}, why=f"a guess {planted}",
        )  # fmt: skip
        kernel = f"kernel_{number % 2}{planted}"
        forecast = forecast.model_copy(update={"case": forecast.case.model_copy(update={"kernel": kernel})})
        sealed = make_sealed(forecast, campaign="grid", why=planted)
        timing = make_timing(2 * MS + number * MS // cells)
        measurement = make_measurement(forecast, timing=timing, counters=COUNTERS, counters_missing=None)
        views.append(make_view(sealed, forecast, measurement))
    wrong, idle = make_forecast(shape={"B": 900, "H": 2, "O": 2}), make_forecast(shape={"B": 901, "H": 2, "O": 2})
    views.append(make_view(make_sealed(wrong, identity="ee" * 32), wrong, failed(wrong, f"it failed {planted}")))
    views.append(make_view(make_sealed(idle, identity="dd" * 32), idle))
    flag = Finding(code="odd-file", severity="flag", path=f"a path {planted}", message=f"a note {planted}")
    return make_book(*views, findings=(flag,))


class Page(HTMLParser):
    """Hold the elements of a page with their attributes, the text of each id, and the scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, text: str) -> None:
        last = self.elements[-1][0] if self.elements else ""
        (self.scripts if last == "script" else self.styles if last == "style" else self.words).append(text)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def document(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found is not None
    value: dict[str, Any] = json.loads(found[1])
    columns = [[different[place] for place in places] for different, places in value["rows"].values()]
    return {**value, "rows": [dict(zip(value["rows"], row, strict=True)) for row in zip(*columns, strict=True)]}


# Contents


def test_every_row_stands_in_the_table_worst_first_with_its_sentence_and_counters() -> None:
    page = Page(html(book()))
    rows = [attributes["id"] for attributes in page.all("tbody") if "id" in attributes]
    # The later cells are slower, so further below their forecast; failed and open ones have no gap.
    assert rows == ["row-6", "row-5", "row-4", "row-3", "row-2", "row-1", "row-7", "row-8"]
    words = " ".join(page.words)
    assert "Failed: it failed" in words and "sealed and not yet measured" in words
    assert words.count("Reasons and counters") == 8
    assert words.count("probabilities") >= 6 and words.count("a guess") == 8


def test_the_document_holds_what_the_charts_draw() -> None:
    value = document(html(book()))
    first = value["rows"][0]
    # 10 GFLOP on 1 GB in 2 ms is 5 TFLOP/s, 50% of the roof, as forecast.
    assert (first["kernel"], first["x"], first["rate"]) == ("kernel_0", 10.0, 5e12)
    assert (first["percent"], first["forecast"], first["low"], first["high"]) == (50.0, 50.0, 45.0, 55.0)
    assert [row["percent"] for row in value["rows"][-2:]] == [None, None]
    assert [one["seal"] for one in value["seals"]] == ["cc" * 5] and first["shares"] == "0.9,0,0,0,0.1,0"
    assert {roof["label"] for roof in value["roofs"]} >= {"DRAM 1.00 TB/s, datasheet"}


def test_the_page_names_what_is_not_proven_and_every_finding() -> None:
    words = " ".join(Page(html(book())).words)
    assert "does not prove" in words and "no second ledger was kept" in words
    assert "odd-file: a path" in words


def test_forecasts_of_one_case_share_a_row_that_a_person_leads() -> None:
    text = html(shared_case("learned", "rule-of-thumb"))
    page = Page(text)
    assert [one["id"] for one in page.all("tbody") if "id" in one] == ["row-1"]
    words = " ".join(page.words)
    assert "3 forecasts" in words and words.count("l2-bound 40% (40–60)") == 2 and "hbm-bound 52.5% (40–60)" in words
    rows = document(text)["rows"]
    assert [(row["n"], row["forecaster"], row["leads"], row["percent"], row["right"]) for row in rows] == [
        (1, "learned", False, 50.0, False), (1, "rule-of-thumb", False, 50.0, False), (1, "ada", True, 50.0, True)
    ]  # fmt: skip


def test_a_cell_without_its_profile_has_a_row_and_no_roofline() -> None:
    (view, *_) = book(1).cells
    page = html(make_book(replace(view, hardware=None)))
    value = document(page)
    assert (value["roofs"], value["x"], value["rows"][0]["percent"]) == ([], None, 50.0)
    assert 'id="against"' in page and 'id="roofline"' not in page


def test_without_a_result_there_is_no_chart_and_no_script() -> None:
    forecast = make_forecast()
    page = html(make_book(make_view(make_sealed(forecast), forecast)))
    assert "<script" not in page and "sealed and not yet measured" in page and len(page) < 60_000


def test_chosen_rows_leave_out_what_is_of_the_whole_ledger() -> None:
    shown = book()
    page = html(shown, only={shown.cells[0].short_name})
    assert document(page)["seals"] == [] and "Track record" not in page and "1 of 8 cases" in page


def test_the_same_ledger_gives_the_same_page() -> None:
    assert html(book()) == html(book())


# Size and safety


def test_three_hundred_cells_fit_into_three_megabytes() -> None:
    assert len(html(book(300)).encode()) < 3_000_000


def test_the_page_of_this_repository_has_at_most_850_bytes_a_forecast(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    run_ledger("report", "--html", str(path), cwd=ROOT).check_returncode()
    rows = document(path.read_text())["rows"]
    # Every forecast is there, in a row of its case.
    assert len(rows) >= 3107 and len({row["n"] for row in rows}) == sum(row["leads"] for row in rows) >= 709
    assert path.stat().st_size < 850 * len(rows)


def test_the_chart_library_is_the_published_one_with_its_licences() -> None:
    assert hashlib.sha256((ASSETS / "echarts.common.min.js").read_bytes()).hexdigest() == ECHARTS_SHA256
    assert "Apache License" in (ASSETS / "echarts.LICENSE").read_text()
    assert "The Apache Software Foundation" in (ASSETS / "echarts.NOTICE").read_text()
    assert "Bostock" in (ASSETS / "echarts.LICENSE-d3").read_text()


def test_the_policy_allows_the_scripts_and_the_style_of_the_page_and_nothing_else() -> None:
    text = html(book())
    page = Page(text)
    (policy,) = (one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    digests = [
        "'sha256-" + base64.b64encode(hashlib.sha256(found.encode()).digest()).decode() + "'"
        for found in re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", text, flags=re.DOTALL)
    ]
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert (rules["style-src"], rules["script-src"].split()) == (digests[0], digests[1:])
    assert len(digests) == 3


def assert_no_field_acts(page: Page) -> None:
    allowed = set(
        "class id lang charset http-equiv content name scope colspan open href type value selected autocomplete "
        "tabindex role aria-label aria-sort aria-live".split()
    )
    drawn = {"svg", "title", "rect", "text", "path", "g", "circle", "polygon"}
    for tag, attributes in page.elements:
        assert tag not in ("img", "iframe", "object", "embed", "base", "link", "video", "audio", "image", "use")
        assert not any(name.startswith("on") or name in ("src", "style", "srcset", "action") for name in attributes)
        if tag not in drawn:
            assert {name for name in attributes if not name.startswith("data-")} <= allowed, tag
        assert (attributes.get("href") or "#").startswith("#")
    assert len(page.all("script")) in (0, 3)


def test_planted_markup_is_text() -> None:
    text = html(book(planted=PLANTED))
    page = Page(text)
    assert_no_field_acts(page)
    assert document(text)["rows"][0]["kernel"].startswith("kernel_0</script><script>")
    assert "onerror=\"document.title='owned'\"" in "".join(page.words)


@settings(max_examples=15, deadline=None)
@given(st.text(max_size=120))
def test_any_field_is_text(planted: str) -> None:
    text = html(book(2, planted=planted.encode("utf-8", "replace").decode()))
    assert_no_field_acts(Page(text))
    document(text)


# In a browser

needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed")
SETTLED = "new Promise(done => setTimeout(() => done(document.title), 300))"
COUNT = "document.querySelectorAll('tbody[id^=row]:not([hidden])').length"


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "planted.html"
    path.write_text(html(book(planted=PLANTED)), encoding="utf-8")
    return path


@pytest.fixture(params=[(1400, False), (400, True)], ids=["wide-light", "phone-dark"])
def browser(request: pytest.FixtureRequest, page_path: Path) -> Iterator[Browser]:
    width, dark = request.param
    with Browser(width=width, dark=dark) as opened:
        opened.open(page_path)
        yield opened


@needs_chromium
def test_the_page_draws_and_filters_and_runs_nothing_planted(browser: Browser, page_path: Path) -> None:
    assert browser.run(SETTLED) == "Ledger report"
    assert browser.run("document.querySelectorAll('canvas').length") == 4
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run(COUNT) == 8
    browser.run(
        "{ const one = document.querySelector('select[data-key=kernel]'); one.value = one.options[1].value;"
        " one.dispatchEvent(new Event('input', {bubbles: true})) }"
    )
    assert browser.run(COUNT) == 3
    assert browser.run("document.getElementById('count').textContent") == "3 of 8 rows, 3 of 8 forecasts"
    # The tip of a dot, by keyboard, shows the planted name; Enter opens its row.
    press = "document.getElementById('roofline').dispatchEvent(new KeyboardEvent('keydown', {key: '%s'}))"
    browser.run(press % "ArrowRight")
    assert "<script>" in browser.run("document.querySelector('.tip').textContent")
    browser.run(press % "Enter")
    assert browser.run("document.querySelectorAll('tbody details[open]').length") == 1
    assert browser.run(SETTLED) == "Ledger report"
    assert browser.said == []
    assert [url for url in browser.asked if not url.startswith("chrome:")] == [page_path.as_uri()]


@needs_chromium
def test_a_forecaster_is_chosen_in_the_place_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "shared.html"
    path.write_text(html(shared_case("learned", "rule-of-thumb")), encoding="utf-8")
    choose = (
        "{ const one = document.querySelector('select[data-key=forecaster]'); one.value = '%s';"
        " one.dispatchEvent(new Event('input', {bubbles: true})) }"
    )
    row = "[...document.querySelector('#row-1 tr').cells].map(cell => cell.textContent).join('|')"
    confusion = "[...document.querySelectorAll('#confusion td')].map(cell => cell.textContent).join('')"
    dots = "echarts.getInstanceByDom(document.getElementById('against')).getOption().series.at(-1).data.length"
    with Browser() as opened:
        opened.open(path)
        assert "|hbm-bound 52.5% (40–60)|" in opened.run(row) and "|−2.5|" in opened.run(row)
        assert (opened.run(confusion), opened.run(dots)) == ("1···", 1)
        opened.run(choose % "learned")
        assert "|l2-bound 40% (40–60) by learned|" in opened.run(row) and "|+10.0|" in opened.run(row)
        assert opened.run("document.querySelector('#row-1 .why span').hidden")
        opened.run(choose % "")
        assert "|hbm-bound 52.5% (40–60)|" in opened.run(row)
        assert opened.run("document.getElementById('count').textContent") == "1 of 1 rows, 3 of 3 forecasts"
        assert (opened.run(confusion), opened.run(dots)) == ("1·2·", 3)
        assert opened.said == []


@needs_chromium
def test_headings_sort_the_table(browser: Browser) -> None:
    first = "document.querySelector('table.rows tbody').id"
    assert browser.run(first) == "row-6"
    browser.run("document.querySelector('th[data-sort=n] button').click()")
    assert browser.run(first) == "row-8"
    browser.run("document.querySelector('th[data-sort=n] button').click()")
    assert browser.run(first) == "row-1"
    assert browser.run("document.querySelector('th[data-sort=n]').getAttribute('aria-sort')") == "ascending"


@needs_chromium
def test_zooming_narrows_the_axes(browser: Browser) -> None:
    shown = (
        "echarts.getInstanceByDom(document.getElementById('roofline')).getOption().dataZoom.map(z => z.end - z.start)"
    )
    assert browser.run(shown) == [100, 100]
    browser.run("document.querySelector('button[data-chart=roofline][data-zoom=\"0.5\"]').click()")
    assert browser.run(shown) == [50, 50]
    browser.run("document.querySelector('button[data-chart=roofline][data-zoom=\"0\"]').click()")
    assert browser.run(shown) == [100, 100]


@needs_chromium
def test_a_pointer_shows_a_cell_and_the_wheel_alone_scrolls_the_page(browser: Browser) -> None:
    browser.run(SETTLED)
    top = "document.getElementById('roofline').scrollIntoView({block: 'start'})"
    browser.run(top)
    x, y = browser.run(
        "(() => { const place = document.getElementById('roofline'), chart = echarts.getInstanceByDom(place);"
        " const dot = chart.getOption().series.find(one => one.type === 'scatter').data[0].value;"
        " const [x, y] = chart.convertToPixel({xAxisIndex: 0, yAxisIndex: 0}, dot);"
        " const box = place.getBoundingClientRect();"
        " return [box.x + x, box.y + y] })()"
    )
    for away in (3, 0):
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x - away, y=y)
    browser.run(SETTLED)
    assert "forecast hbm-bound 50% (45–55)" in browser.run("document.querySelector('.tip').textContent")
    before = browser.run("scrollY")
    browser.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=200)
    browser.run(SETTLED)
    assert browser.run("scrollY") > before
    zoomed = "echarts.getInstanceByDom(document.getElementById('roofline')).getOption().dataZoom[0].end"
    assert browser.run(zoomed) == 100
    browser.run(top)
    browser.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-200, modifiers=2)
    browser.run(SETTLED)
    assert browser.run(zoomed) < 100


@needs_chromium
def test_the_policy_stops_markup_that_escaped(browser: Browser) -> None:
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title=1\">')")
    assert browser.run(SETTLED) == "Ledger report"
    assert any("Content Security Policy" in words for words in browser.said)


@needs_chromium
def test_with_scripts_off_the_picture_and_every_number_are_there(page_path: Path, tmp_path: Path) -> None:
    with Browser(scripts=False) as opened:
        opened.open(page_path)
        # The debugger may still ask; the page's own scripts did not run.
        assert opened.run("document.documentElement.className") == ""
        assert opened.run("getComputedStyle(document.querySelector('svg.plot')).display") == "block"
        assert opened.run("getComputedStyle(document.getElementById('controls')).display") == "none"
        assert opened.run(COUNT) == 8
        opened.pdf(tmp_path / "page.pdf")
        assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
        assert opened.said == []
