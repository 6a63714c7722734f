"""Tests what a report shows, and that nothing in a record can act on the terminal or page that shows it."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
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

from ledger.analysis.book import Book, CellView, Commit, Voided
from ledger.analysis.gap import HIT_POINTS
from ledger.analysis.report_rows import rows as report_rows
from ledger.cli.output import emit
from ledger.errors import InputError
from ledger.records import Finding, Tool, Void
from ledger.render import report
from ledger.render.counter_card import counter_lines
from ledger.render.markdown_page import page_name, seal_page, seals_table
from ledger.render.page_document import row_value
from ledger.render.report_text import finding_text, outcome
from ledger.render.site import write_site

ROOT = Path(__file__).parents[2]
SMALL = make_forecast(shape={"B": 1, "H": 64, "O": 64}, percent_milli=52_500, low_milli=40_000, high_milli=60_000)
WIDE = make_forecast(shape={"B": 8, "H": 64, "O": 128}, probabilities_ppm={"hbm-bound": 900_000, "l2-bound": 100_000})
CAMPAIGN = make_sealed(SMALL, WIDE, campaign="grid", why="a first look")
LATER = make_sealed(SMALL, identity="dd" * 32, sequence=2, previous=("cc" * 32,), position=3)

REFUSAL = Finding(code="edited", severity="refused", path="predictions/cc/x.json", message="changed in commit 1234")
FLAG = Finding(code="date-order", severity="flag", path="verifications/0.json", message="dates contradict the graph")


def book() -> Book:
    """Return two seals: a campaign with a measured and a failed cell, and an open, informed revision."""
    measured = make_view(CAMPAIGN, SMALL, make_measurement(SMALL, timing=make_timing(2 * MS, launch_ps=MS // 5)))
    return make_book(
        measured,
        make_view(CAMPAIGN, WIDE, failed(WIDE)),
        make_view(LATER, SMALL, blind=False, revises=(measured.name,)),
        findings=(FLAG,),
    )


def printed(shown: Book, *, width: int = 100, terminal: bool = False) -> str:
    stream = io.StringIO()
    report.render(
        shown,
        Console(file=stream, width=width, force_terminal=terminal, color_system="truecolor" if terminal else None),
    )
    return stream.getvalue()


def test_a_page_of_named_cells_holds_no_other() -> None:
    named = report_rows(book())[0].view.short_name
    page = report.html(book(), only={named})
    assert "B=1" in page and "B=8" not in page
    assert "1 of 3 cases" in page


def test_a_wrong_regime_is_a_miss_however_small_the_gap() -> None:
    measurement = make_measurement(
        SMALL, timing=make_timing(2 * MS, launch_ps=MS // 5), counters=COUNTERS, counters_missing=None
    )
    found = [
        report_rows(make_book(make_view(make_sealed(forecast), forecast, measurement)))[0]
        for regime in ("launch-bound", "hbm-bound", "l2-bound", "compute-bound", "latency-bound", "smem-bound")
        for forecast in [SMALL.model_copy(update={"regime": regime, "percent_milli": 52_500})]
    ]
    for row in found:
        verdict = row.run.verification
        right = not verdict.regimes or verdict.regime_is_right
        assert outcome(row) == ("hit" if right and abs(verdict.gap.percent) <= HIT_POINTS else "miss")
    assert "miss" in map(outcome, found)


# JSON


def test_document_has_a_row_for_every_cell() -> None:
    shown = report.document(book())
    assert [(row["name"], row["state"], row["blind"]) for row in shown["rows"]] == [
        (f"{'cc' * 32}#rmsnorm_matmul-B1-H64-O64-fp16", "measured", True),
        (f"{'cc' * 32}#rmsnorm_matmul-B8-H64-O128-fp16", "failed", True),
        (f"{'dd' * 32}#rmsnorm_matmul-B1-H64-O64-fp16", "open", False),
    ]
    assert shown["refused"] == []
    assert [finding["code"] for finding in shown["findings"]] == ["date-order"]


def test_document_row_holds_prediction_measurement_and_gap() -> None:
    row = report.document(book())["rows"][0]
    assert row["predicted"] == {
        "regime": "hbm-bound",
        "percent": 52.5,
        "low": 40.0,
        "high": 60.0,
        "probabilities": None,
        "why": "a guess",
    }
    measured = row["measured"]
    assert measured["percent"] == pytest.approx(50.0)  # 1 ms of roof in 2 ms
    assert (measured["duration_us"], measured["launch_us"]) == (2000.0, 200.0)
    assert (measured["regime"], measured["counters"], row["grade"]) == (None, None, "C")
    assert row["gap"]["percent"] == pytest.approx(-2.5)
    assert [cause["name"] for cause in row["gap"]["causes"]] == ["launch", "unexplained"]
    assert (row["counts"], row["levels"], row["campaign"], row["forecaster"]) == (True, [0, 1], "grid", "ada")


def test_document_probabilities_are_fractions() -> None:
    predicted = report.document(book())["rows"][1]["predicted"]
    assert predicted["probabilities"] == {"hbm-bound": 0.9, "l2-bound": 0.1}


def test_document_unmeasured_rows_measure_nothing() -> None:
    failed_row, open_row = report.document(book())["rows"][1:]
    assert (failed_row["measured"], failed_row["gap"], failed_row["failure"]) == (None, None, "wrong result")
    assert (open_row["measured"], open_row["gap"], open_row["grade"], open_row["run"]) == (None, None, None, None)
    assert open_row["revises"] == [f"{'cc' * 32}#rmsnorm_matmul-B1-H64-O64-fp16"]


def test_document_lists_what_is_missing_with_its_state() -> None:
    stale = make_view(CAMPAIGN, SMALL, state="stale")
    void = make_view(CAMPAIGN, WIDE, state="void")
    why = Void(
        schema="ledger/void/1",
        tool=Tool(name="ledger", version="0"),
        seal="cc" * 32,
        cell=WIDE.cell,
        why="wrong shape",
        extensions={},
    )
    commit = Commit(sha="3" * 40, when="", author="", position=4)
    shown = make_book(stale, void, voids=(Voided("ee" * 32, "verifications/ee/x.json", commit, why),))
    assert [(cell["state"], cell["why"]) for cell in report.document(shown)["missing"]] == [
        ("stale", "open, and its kernel or hardware profile has changed since"),
        ("void", "wrong shape"),
    ]
    assert "void (withdrawn in the open): #2, because: wrong shape" in printed(shown)
    assert "stale (open, and its kernel or hardware profile has changed since): #1" in printed(shown)


def test_every_run_is_shown_and_the_first_finished_one_counts() -> None:
    runs = (failed(SMALL), make_measurement(SMALL, run=1), make_measurement(SMALL, run=2))
    shown = make_book(make_view(CAMPAIGN, SMALL, *runs))
    assert [(row["run"], row["counts"]) for row in report.document(shown)["rows"]] == [
        (0, False),
        (1, True),
        (2, False),
    ]
    assert printed(shown).count("(again)") == 1


def test_document_of_a_refused_ledger_has_no_rows() -> None:
    shown = make_book(*book().cells, findings=(REFUSAL, FLAG))
    value = report.document(shown)
    assert (value["rows"], value["missing"]) == ([], [])
    assert [(finding["code"], finding["path"]) for finding in value["refused"]] == [("edited", "predictions/cc/x.json")]


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    forecast = make_forecast(why="\u202e\x1b é")
    emit(report.document(make_book(make_view(make_sealed(forecast), forecast))))
    text = capsys.readouterr().out
    assert text.isascii()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert json.loads(text)["rows"][0]["predicted"]["why"] == "\u202e\x1b é"


# Conditions of a percent


def steady_book(boost_ps: int, **changes: Any) -> Book:
    extensions = {"steady/1": {"boost_ps": boost_ps, "boost_clock_mhz": 1900}}
    measurement = make_measurement(SMALL, timing=make_timing(2 * MS), extensions=extensions, **changes)
    return make_book(make_view(CAMPAIGN, SMALL, measurement))


def test_a_steady_percent_says_so_and_gives_that_of_the_boost_state() -> None:
    shown = steady_book(MS)
    assert "not determined 50.0% steady" in printed(shown, width=140)
    assert "steady state; in the boost state at 1900 MHz it was 100.0%." in printed(shown, width=400)
    measured = report.document(shown)["rows"][0]["measured"]
    assert (measured["clock_state"], measured["boost_percent"], measured["boost_us"]) == ("steady", 100.0, 1000.0)
    for page in (report.markdown(shown), report.html(shown)):
        assert "50.0% steady" in page and "in the boost state" in page


def test_states_that_do_not_differ_are_not_named() -> None:
    shown = steady_book(2 * MS)
    assert "steady" not in printed(shown, width=140) and "boost" not in printed(shown, width=140)
    measured = report.document(shown)["rows"][0]["measured"]
    assert (measured["clock_state"], measured["boost_percent"], measured["boost_us"]) == (None, None, None)


def test_a_percent_above_100_and_a_busy_machine_are_explained_in_the_row() -> None:
    extensions = {"cpu_load/1": {"others_ppm": 340_000, "window_ms": 300}}
    measurement = make_measurement(SMALL, timing=make_timing(MS * 98 // 100), extensions=extensions)
    shown = make_book(make_view(CAMPAIGN, SMALL, measurement))
    text = printed(shown, width=400)
    assert "Other processes used 34% of the processors during the timing." in text
    assert "Above 100%: unknown: no recorded fact explains it" in text
    measured = report.document(shown)["rows"][0]["measured"]
    assert measured["others_percent"] == 34 and measured["above_100"].startswith("unknown: ")
    quiet = report.document(book())["rows"][0]["measured"]
    assert (quiet["others_percent"], quiet["above_100"]) == (None, None)


# Terminal


def test_missing_rows_are_joined() -> None:
    one, two, three, five = (
        make_view(LATER, make_forecast(shape={"B": size, "H": 2, "O": 2})) for size in (1, 2, 3, 5)
    )
    shown = make_book(one, two, three, book().cells[0], five)
    assert "  open (sealed and not yet measured): #1 to #3, #5" in printed(shown).splitlines()


def test_forecasts_that_one_run_scores_are_one_row_led_by_a_person() -> None:
    shown = shared_case("learned", "rule-of-thumb")
    assert [row.number for row in report_rows(shown)] == [1, 1, 1]
    text = printed(shown, width=140)
    assert "3 seals, 3 forecasts of 1 case: 2 scored by another seal's run, 1 measured" in text
    assert "hbm-bound 52.5% (40–60)" in text
    # The run is hbm-bound at 50%; l2-bound at 40% is a miss in both.
    assert "also learned 40.0% +10.0 l2; rule-of-thumb 40.0% +10.0 l2" in text
    assert "Not measured" not in text and text.count("As forecast to 2.5 points") == 1


def test_a_case_that_was_measured_again_is_one_case_and_one_forecast() -> None:
    shown = shared_case("learned")
    view = shown.cells[-1]
    again = replace(view.runs[0], recorded=replace(view.runs[0].recorded, id="ab" * 32))
    twice = make_book(shown.cells[0], replace(view, runs=(*view.runs, again)))
    assert [row.number for row in report_rows(twice)] == [1, 1, 2]
    assert "2 seals, 2 forecasts of 1 case: 1 scored by another seal's run, 1 measured" in printed(twice, width=140)
    assert [row_value(row, None, leads=True)["again"] for row in report_rows(twice)] == [False, False, True]


def test_markdown_has_a_row_a_case_too() -> None:
    text = report.markdown(shared_case("learned"))
    row, counters = [line for line in text.splitlines() if line.startswith("| 1 ")]
    assert counters.count("|") == 12 and "hbm-bound 52.5% (40–60)" in row and row.endswith("| learned 40.0% +10.0 l2 |")


def test_open_forecasts_of_one_case_are_one_row() -> None:
    text = printed(shared_case("learned", measured=False))
    assert "also learned 40.0% l2-bound" in text and "open (sealed and not yet measured): #1" in text


def test_a_forecast_that_another_run_scores_is_shown_alone_with_its_result() -> None:
    shown = shared_case("learned")
    name = shown.cells[0].short_name
    stream = io.StringIO()
    report.render(shown, Console(file=stream, width=140), only={name})
    assert "l2-bound 40%" in stream.getvalue() and "hbm-bound 50.0%" in stream.getvalue()
    (row,) = (row for row in report.document(shown)["rows"] if row["forecaster"] == "learned")
    assert (row["state"], row["measured"], row["counts"]) == ("open", None, False) and row["scored_by"]


def test_a_long_list_of_cases_explains_the_largest_gaps() -> None:
    views = []
    for number in range(101):
        forecast = make_forecast(shape={"B": number + 1, "H": 64, "O": 64}, percent_milli=50_000)
        timing = make_timing(2 * MS + number * MS // 1000)
        views.append(make_view(make_sealed(forecast), forecast, make_measurement(forecast, timing=timing)))
    text = printed(make_book(*views), width=140)
    _, _, why = text.partition("Why, for the 20 largest gaps")
    numbers = [line.split()[0] for line in why.splitlines() if "forecast" in line and line.strip()[0].isdigit()]
    assert numbers == [str(number) for number in range(101, 81, -1)]


def test_many_findings_of_one_code_are_counted() -> None:
    flags = [FLAG.model_copy(update={"path": f"verifications/{n}.json", "message": f"is {n % 15}"}) for n in range(30)]
    words = finding_text(make_book(findings=tuple(flags)))
    assert len(words) == 11
    assert words[0] == "date-order: verifications/0.json and 1 more: is 0"
    assert words[-1] == "date-order: 10 more (ledger report --json)"


def test_terminal_shows_prediction_measurement_and_why() -> None:
    text = printed(book(), width=140)
    assert "hbm-bound 52.5% (40–60)" in text
    assert "not determined 50.0%" in text
    assert "\u22122.5" in text
    assert "informed, revised" in text
    assert "As forecast to 2.5 points (50.0% for 52.5%)" in text
    assert "Failed: wrong result" in text
    assert "open (sealed and not yet measured): #3" in text
    assert "date-order: verifications/0.json: dates contradict the graph" in text


def test_terminal_summary_counts_states() -> None:
    assert printed(book()).splitlines()[:4] == [
        "2 seals, 3 cells: 1 measured, 1 failed, 1 open",
        "no regime determined; gap 2.5 points on average, \u22122.5 signed",
        "sight: 1 blind",
        "grade C in 1; evidence level 0 in 1, 1 in 1 (what each proves: ledger audit)",
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_terminal_keeps_to_its_width(width: int) -> None:
    assert max(len(line) for line in printed(book(), width=width).splitlines()) <= width


def test_terminal_of_a_refused_ledger_names_each_offender_and_nothing_else() -> None:
    text = printed(make_book(*book().cells, findings=(REFUSAL,)))
    assert text.splitlines() == [
        "The report does not open: the evidence is refused for 1 reason.",
        "  edited: predictions/cc/x.json: changed in commit 1234",
    ]


def test_empty_book_renders_everywhere() -> None:
    empty = make_book()
    assert printed(empty) == "0 seals, 0 cells: none\n"
    assert "0 seals" in report.markdown(empty)
    assert "0 seals" in report.html(empty)
    assert report.document(empty)["rows"] == []


# Hostile fields

NASTY = (
    "\x1b]0;owned\x07\x1b[2J \u202etxt\u202c [bold red]rich[/] | `x` <script>alert(1)</script> "
    "![i](http://evil.example/a.png) [l](javascript:x) &amp; \" ' \n# head\n| a |"
)


def nasty_book(text: str) -> Book:
    forecast = make_forecast(why=text)
    sealed = make_sealed(forecast, forecaster="ada", campaign="grid", why=text)
    wrong = make_view(sealed, forecast, failed(forecast, text))
    blocked = make_view(sealed, forecast, make_measurement(forecast, counters_missing=text))
    finding = Finding(code="odd-file", severity="flag", path=text, message=text)
    return make_book(wrong, blocked, findings=(finding,))


def everywhere(shown: Book) -> list[str]:
    # tests/render/test_html_page.py reads the page; here without the library that draws its charts.
    page = re.sub(r"<script>.*?</script>", "", report.html(shown), flags=re.DOTALL)
    pages = [printed(shown), report.markdown(shown), page]
    pages += [seals_table(shown), *(seal_page(sealed) for sealed in shown.seals)]
    refused = make_book(
        *shown.cells, findings=tuple(f.model_copy(update={"severity": "refused"}) for f in shown.findings)
    )
    return [*pages, printed(refused), report.markdown(refused), report.html(refused)]


def assert_harmless(pages: list[str]) -> None:
    for page in pages:
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", page)


def test_nasty_fields_do_not_act() -> None:
    shown = nasty_book(NASTY)
    assert_harmless(everywhere(shown))
    for page in (report.markdown(shown), seal_page(shown.seals[0])):
        assert not re.search(r"(?<!\\)<(?!U\+)", page)
        assert not re.search(r"(?<!\\)\]\(", page)
        assert "\n# head" not in page


def test_nasty_fields_use_no_style_of_the_terminal() -> None:
    text = printed(nasty_book(NASTY), terminal=True)
    sequences = re.findall(r"\x1b[^a-zA-Z]*[a-zA-Z]", text)
    assert sequences  # it does colour
    assert all(re.fullmatch(r"\x1b\[[0-9;]*m", sequence) for sequence in sequences)
    assert "[bold red]" in text


@settings(max_examples=40)
@given(st.text(max_size=200))
def test_any_field_is_harmless_everywhere(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    shown = nasty_book(text)
    assert_harmless(everywhere(shown))
    for line in report.markdown(shown).splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 10


# Pages


def test_seal_page_holds_every_forecast() -> None:
    view = seal_page(CAMPAIGN)
    assert "cc" * 32 in view
    assert (
        "| rmsnorm\\_matmul B=1 H=O=64 fp16 toy | 10.0 | 100 | left | 1.00 ms | hbm-bound | 52.5% | 40 to 60 |  |"
        in view
    )
    assert "hbm-bound 90%, l2-bound 10%" in view


def test_seals_table_links_pages_and_tells_two_campaigns_of_one_name_apart() -> None:
    twin = make_sealed(WIDE, identity="ee" * 32, campaign="grid", position=4)
    text = seals_table(make_book(*book().cells, make_view(twin, WIDE)))
    assert "| [cccccccccc](predictions/grid-cccccccccc.md) | grid | ada |" in text
    assert "| [eeeeeeeeee](predictions/grid-eeeeeeeeee.md) | grid | ada |" in text
    assert "| [dddddddddd](predictions/seal-dddddddddd.md) |  | ada |" in text
    assert "| 1 measured, 1 failed |" in text
    assert "| 1 open |" in text


def test_site_has_a_page_for_the_report_each_seal_and_each_benchmark(tmp_path: Path) -> None:
    root, folder = tmp_path / "repository", tmp_path / "site"
    (root / "benchmarks" / "tuning").mkdir(parents=True)
    row = {"kernel": "matmul", "shape": {"M": 8}, "dtype": "fp16", "ours_us": 2.0, "rel_error": 0.0, "baseline": None}
    row |= dict.fromkeys(("baseline_us", "torch_compile_us", "torch_eager_us", "torch_matmul_us"))
    row |= {"floor_us": 1.0, "pct_of_roof": 50.0}
    files = {
        "toy.json": {"device": "Toy 1", "conditions": {"driver": "1"}, "rows": [row]},
        "tuning/matmul-toy.json": {
            "schema": "ledger/tune/1", "kernel": "matmul", "hardware": "toy",
            "rows": [{"shape": {"M": 8}, "dtype": "fp16", "timed": 1, "own_us": 2.0, "own": {"block": 64},
                      "fastest": [{"config": {"block": 32}, "ratio": 0.9, "again": True}]}],
        },
        "other.json": [1],
    }  # fmt: skip
    for name, value in files.items():
        (root / "benchmarks" / name).write_text(json.dumps(value))
    (folder / "roofline" / "grid").mkdir(parents=True)
    (folder / "roofline" / "grid" / "roofline.svg").write_text("drawn before")
    written = write_site(book(), root, folder)
    assert sorted(path.relative_to(folder).as_posix() for path in written) == [
        "benchmarks/toy.md", "benchmarks/tuning/matmul-toy.md", "index.md",
        f"predictions/{page_name(CAMPAIGN)}", f"predictions/{page_name(LATER)}", "report.html", "report.md", "rules.md",
    ]  # fmt: skip
    index = (folder / "index.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", index)
    assert len(targets) == 8 and all((folder / target).is_file() for target in targets)
    assert "| matmul | M=8 | fp16 | 2.00 |" in (folder / "benchmarks/toy.md").read_text()
    assert "| 0.9000 | yes | block=32 |" in (folder / "benchmarks/tuning/matmul-toy.md").read_text()
    assert (folder / "report.md").read_text() == report.markdown(book())
    assert (folder / "roofline" / "grid" / "roofline.svg").read_text() == "drawn before"


def test_site_has_a_page_for_every_benchmark_of_this_repository(tmp_path: Path) -> None:
    written = write_site(book(), ROOT, tmp_path)
    pages = {
        path.relative_to(tmp_path / "benchmarks").with_suffix("") for path in written if "benchmarks" in path.parts
    }
    folder = ROOT / "benchmarks"
    # Documents of other schemas, such as timings that a launch rule is fitted to, have no page.
    shown = {None, "ledger/before-after/1", "ledger/tune/1"}
    files = [path for path in folder.rglob("*.json") if json.loads(path.read_text()).get("schema") in shown]
    assert len(files) >= 14 and pages == {path.relative_to(folder).with_suffix("") for path in files}
    page = (tmp_path / "benchmarks" / "shared-code-h200.md").read_text(encoding="utf-8")
    assert "| rmsnorm_matmul | B=1 H=2048 O=2048 | fp16 | 2.796 | 2.797 | 2.798 | 1.000 |" in page


def test_site_names_a_damaged_benchmark(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "b.json").write_text('{"device": "Toy 1", "conditions": {}, "rows": [1]}')
    with pytest.raises(InputError, match=r"b\.json: AttributeError"):
        write_site(book(), tmp_path, tmp_path / "site")


def test_markdown_report_has_a_table_of_counters_where_there_are_any() -> None:
    assert "## Counters" not in report.markdown(book())
    counted = make_view(CAMPAIGN, SMALL, make_measurement(SMALL, counters=COUNTERS, counters_missing=None))
    text = report.markdown(make_book(counted))
    assert "## Counters" in text and "| DRAM % | L2 % |" in text


def test_counters_of_a_named_cell_end_with_every_factor_of_its_gap() -> None:
    counted = make_view(CAMPAIGN, SMALL, make_measurement(SMALL, counters=COUNTERS, counters_missing=None))
    listed = dict(counter_lines(report_rows(make_book(counted))[0]))
    # Forecast 52.5%, measured 50%; nothing but the time is known of the toy call.
    assert listed["causes"].endswith("unexplained ×1.05")


def test_markdown_report_has_a_line_for_every_row() -> None:
    text = report.markdown(book())
    assert (
        "| 1 | rmsnorm\\_matmul B=1 H=O=64 fp16 toy | hbm-bound 52.5% (40–60) | not determined 50.0% | 2.00 ms" in text
    )
    assert "- **1.** As forecast to 2.5 points" in text


def test_html_marks_hit_and_miss() -> None:
    miss: CellView = make_view(CAMPAIGN, SMALL, make_measurement(SMALL, timing=make_timing(4 * MS)))
    page = report.html(make_book(book().cells[0], miss))
    assert '<td class="number hit">\u22122.5' in page
    assert '<td class="number miss">\u221227.5' in page


def test_render_only_some_cells() -> None:
    stream = io.StringIO()
    report.render(book(), Console(file=stream, width=100), only={"dddddddddd#rmsnorm_matmul-B1-H64-O64-fp16"})
    text = stream.getvalue()
    assert "seal dddddddddd" in text
    assert "cccccccccc" not in text


def test_findings_about_a_row_carry_its_number() -> None:
    moved = Finding(code="clock-moved", severity="flag", path="verifications/00/x.json", message="it moved")
    row = make_view(CAMPAIGN, SMALL, make_measurement(SMALL), findings=(moved,))
    shown = make_book(row, findings=(moved, FLAG))
    for text in (printed(shown), report.html(shown)):
        assert "#1 clock-moved: it moved" in text
        assert "date-order: verifications/0.json: dates contradict the graph" in text
