"""Checks every command: help of it and its options, the keys of `--json`, and its section in the reference."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import typer
from ledger_process import run_ledger

from ledger.cli.app import app
from ledger.render.command_reference import options_of, render_markdown, walk

ROOT = Path(__file__).parents[2]
WITHOUT_JSON = {"init"}  # prints what it made, one path a line
PREDICT = "predict matmul --hw t4 --dtype fp16 --shape M=64,N=64,K=64 --regime launch-bound --pct 2 --json"
ENVIRONMENT = {
    **os.environ,
    **{f"GIT_{role}_{field}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")},
    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
}


APPLICATION = typer.main.get_command(app)
COMMANDS = dict(walk(APPLICATION))

# What scripts may rely on: the keys of each document, in order, or of each row where the document is a list.
JSON_KEYS = {
    "predict": "id path commit",
    "forecast": "cells",
    "report": "head rows missing refused findings machines claims",
    "history": "head cells",
    "diff": "head a b mean_time_ratio cells only_a only_b same",
    "status": "head cells claims refused counts",
    "log": "commit date_self_declared kind id what author forecaster",
    "score": (
        "forecaster sight blind sealed measured bias error intervals vacuous coverage interval_score regimes "
        "regime_right brier log_score group log_error log_bias wis ci95 resampled repeats repeat_percent "
        "machines machine_percent timing_percent calibration skill claims"
    ),
    "roofline": "schema head devices ceilings slopes dots",
    "audit": "verdict reason commit findings levels predictions claims challenge notes not_proven log",
    "hardware list": "name title target device_names ceilings",
    "hardware show": "profile ridge_flop_per_byte lacking smem_bytes_per_s",
    "kernels list": "name operation dtypes",
    "kernels show": (
        "name operation summary formula shape_keys dtypes implementations baselines excludes tolerances "
        "cases shipped sha256"
    ),
    "doctor": "what state remedy",
    "challenge": "challenge anchor commitment",
    "order": "path cells carried_sources",
    "drill": "from seed questions",
    "timeline": "path device kernel shape dtype overlap slices missing",
}
LISTS_OF_ROWS = {"predict", "log", "score", "hardware list", "kernels list", "doctor"}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_says_what_it_does_in_one_sentence(name: str):
    words = COMMANDS[name].help or ""
    assert words.endswith(".") and len(words.splitlines()) == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str):
    assert not [option for option, parameter in options_of(COMMANDS[name]).items() if not parameter.help]


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_json(name: str):
    assert ("--json" in options_of(COMMANDS[name])) == (name not in WITHOUT_JSON)


def test_reference_has_a_section_for_each_command_with_every_option():
    page = render_markdown(APPLICATION)
    sections = dict(re.findall(r"^## ledger ([a-z ]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(COMMANDS)
    for name, text in sections.items():
        assert set(re.findall(r"`(--[a-z-]+)`", text)) == set(options_of(COMMANDS[name])), name


def run(folder: Path, *arguments: str, width: int = 100) -> subprocess.CompletedProcess[str]:
    return run_ledger(*arguments, cwd=folder, env={**ENVIRONMENT, "COLUMNS": str(width)})


def printed(folder: Path, *arguments: str) -> object:
    done = run(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a ledger with one open forecast."""
    folder = tmp_path_factory.mktemp("ledger")
    assert run(folder, "init", ".").returncode == 0
    told = printed(folder, *(PREDICT.split()))
    assert list(told[0]) == JSON_KEYS["predict"].split()
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "forecast matmul --hw t4",
        "report", "history matmul", "diff HEAD~1 HEAD", "status", "log", "score", "roofline --hw t4", "audit",
        "hardware list", "hardware show t4",
        "kernels list", "kernels show matmul", "doctor", "challenge", "order",
        "drill --from {ROOT}",
    ],
)  # fmt: skip
def test_json_holds_the_agreed_keys(sealed: Path, command: str):
    name = max((name for name in COMMANDS if f"{command} ".startswith(f"{name} ")), key=len)
    value = printed(sealed, *command.format(ROOT=ROOT).split(), "--json")
    first = value[0] if isinstance(value, list) else value
    assert list(first) == JSON_KEYS[name].split()
    assert isinstance(value, list) == (name in LISTS_OF_ROWS)


def test_a_forecast_asks_the_forecasters_and_seals_nothing(sealed: Path):
    command = "forecast matmul --hw h200 --dtype fp16 --shape M=64,N=64,K=64 --shape M=4096,N=4096,K=4096".split()
    small, large = printed(sealed, *command, "--json")["cells"]
    assert small["shape"] == {"M": 64, "N": 64, "K": 64} and small["roof"]["path"] == "fp16_tensor"
    regimes = {one["forecaster"]: one["regime"] for one in large["answers"]}
    assert set(regimes.values()) == {"compute-bound"} and len(regimes) >= 5
    silent = {one["forecaster"]: one["reason"] for one in large["unanswered"]}
    assert set(silent) >= {"persistence", "learned"}
    assert "no fp16 cell of matmul on h200 is measured" in silent["persistence"]
    shown = run(sealed, *command, "--by", "naive-roofline,persistence").stdout
    assert "matmul M=N=K=4096 fp16 on h200" in shown and "measured-roofline" not in shown
    assert len(printed(sealed, "status", "--json")["cells"]) == 1
    for wrong in (["--by", "naive"], ["--shape", "M=1"], ["--dtype", "int8"], ["--hw", "h20000"]):
        done = run(sealed, *command, *wrong)
        assert done.returncode == 2 and done.stderr.startswith("ledger: "), done.stderr


def test_a_forecast_needs_no_repository(tmp_path: Path):
    (cell, *_) = printed(tmp_path, *"forecast softmax --hw t4 --by persistence,naive-roofline --json".split())["cells"]
    assert [one["forecaster"] for one in cell["answers"]] == ["naive-roofline"]


def test_a_forecast_of_a_campaign_answers_its_cells(tmp_path: Path):
    campaign = tmp_path / "c.yaml"
    campaign.write_text(
        "campaign: c\nhardware: h200\ncells:\n  - {kernel: softmax, dtype: fp16, shape: {M: [64, 4096], N: 512}}\n"
    )
    cells = printed(tmp_path, "forecast", "--from", str(campaign), "--by", "analytic", "--json")["cells"]
    assert [cell["shape"]["M"] for cell in cells] == [64, 4096]
    for wrong in (["softmax", "--from", str(campaign)], ["softmax"], ["--hw", "h200"]):
        done = run(tmp_path, "forecast", *wrong)
        assert done.returncode == 2 and "expected" in done.stderr


def test_an_order_contains_the_anchor_of_a_challenge(sealed: Path, tmp_path: Path):
    handed = printed(sealed, "challenge", "--json")
    path = tmp_path / "order.json"
    assert run(sealed, "order", "--challenge", handed["challenge"], "-o", str(path)).returncode == 0
    assert [cell["anchor"] for cell in json.loads(path.read_bytes())["cells"]] == [handed["anchor"]]
    assert run(sealed, "order", "--challenge", "short", "-o", str(path)).returncode == 2
    assert run(sealed, "verify", "--challenge", handed["challenge"], "--from", str(tmp_path)).returncode == 2


def test_report_names_single_cells_and_writes_pages_that_git_does_not_see(sealed: Path, tmp_path: Path):
    name = printed(sealed, "status", "--json")["cells"][0]["seal"][:8]
    assert printed(sealed, "report", name, "--json")["missing"]
    head = printed(sealed, "report", "--json")["head"]
    folder = tmp_path / "site"
    assert "wrote 5 pages" in run(sealed, "report", "--site", str(folder)).stderr
    assert (folder / "report.md").is_file() and (folder / "report.html").is_file()
    assert printed(sealed, "report", "--json")["head"] == head
    assert run(sealed, "report", "abcdef").returncode == 2
    assert run(sealed, "report", name, "--site", str(folder)).returncode == 2


LISTS = ["status", "log", "audit", "hardware show h200", "kernels list", "kernels show matmul", "hardware list"]


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("command", LISTS)
def test_no_name_is_broken_within_a_word(sealed: Path, command: str, width: int):
    done = run(sealed, *command.split(), width=width)
    assert done.returncode == 0, done.stderr
    assert "1 cells" not in done.stdout and "…" not in done.stdout
    if command in ("status", "log", "audit"):
        assert "launch-bound" in done.stdout or command == "log"
        assert "matmul" in done.stdout


BAD_INPUT = {
    "predict mypkg.ops --hw t4 --regime launch-bound --pct 2": "kernel 'mypkg.ops' is not known; expected one of",
    f"{PREDICT} --low 1": "--low 1: given without --high; expected both or neither",
    f"{PREDICT} --high 3": "--high 3: given without --low; expected both or neither",
    f"{PREDICT} --sight near": "--sight near: without --known; expected a sentence on what had been timed",
    f"{PREDICT} --tsa notaurl": "--tsa: got 'notaurl'; expected the http:// or https:// address",
    "verify --tsa notaurl": "--tsa: got 'notaurl'; expected the http:// or https:// address",
    "predict a:b --hw t4 --pass back --regime launch-bound --pct 2": (
        "--pass: got 'back'; expected forward, backward or both"
    ),
    "report --campaign nope": "campaign 'nope': this ledger has no campaign; seal one: ledger predict --from FILE",
    "report --html nodir/r.html": "nodir/r.html: its folder does not exist; expected one that does: mkdir -p nodir",
    "challenge --draw all": "--draw all: no sealed domain is left to draw; seal one: ledger challenge --domain FILE",
    "audit --challenge short .": "--challenge: 5 characters; expected 16 to 400: see ledger challenge",
}


@pytest.mark.parametrize("command", BAD_INPUT)
def test_bad_input_is_named_with_what_was_expected_and_changes_nothing(sealed: Path, command: str):
    before = printed(sealed, "status", "--json")["head"]
    done = run(sealed, *command.split())
    assert done.returncode == 2 and done.stderr.startswith(f"ledger: {BAD_INPUT[command]}")
    assert printed(sealed, "status", "--json")["head"] == before


def test_an_order_of_another_form_says_what_writes_one(sealed: Path, tmp_path: Path):
    (tmp_path / "bad.json").write_text("{}")
    done = run(sealed, "measure", str(tmp_path / "bad.json"), "-o", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "schema: not given; expected it, in an order written by: ledger order" in done.stderr


@pytest.mark.parametrize("group", ["hardware", "kernels"])
def test_the_commands_of_a_group_are_listed_whole(sealed: Path, group: str):
    assert "..." not in run(sealed, group, "--help", width=80).stdout.partition("Commands:")[2]


def test_reveal_takes_hidden_forecasts_and_verify_measured_ones_too():
    (ids,) = (one for one in COMMANDS["reveal"].params if one.name == "ids")
    assert ids.help.endswith("none: every hidden one.")
    for name in ("verify", "order"):
        (ids,) = (one for one in COMMANDS[name].params if one.name == "ids")
        assert ids.help == "Seals or SEAL#CELL names, measured ones again; none: every open cell."


def test_the_list_of_commands_says_whole_what_each_does(sealed: Path):
    listed = run(sealed, "--help", width=80).stdout.partition("Commands:")[2]
    assert "import     " in listed and "..." not in listed


def test_a_report_may_be_narrowed_and_summed(sealed: Path):
    rows = printed(sealed, "report", "--json")["rows"]
    assert printed(sealed, "report", "--kernel", rows[0]["kernel"], "--json")["rows"] == rows
    assert printed(sealed, "report", "--since", "9999-01-01", "--json")["rows"] == []
    (group,) = printed(sealed, "report", "--by", "kernel", "--json")["groups"]
    assert (group["name"], group["rows"], group["measured"]) == (rows[0]["kernel"], 1, 0)
    for wrong in (["--by", "moon"], ["--kernel", "moon"], ["--since", "soon"], ["--worst", "0"]):
        assert run(sealed, "report", *wrong).returncode == 2
    assert run(sealed, "report", "--worst", "1", "--markdown", "r.md").returncode == 2


def test_a_history_is_found_by_kernel_seal_or_cell(sealed: Path):
    (cell,) = printed(sealed, "status", "--json")["cells"]
    (whole,) = printed(sealed, "history", "matmul", "--json")["cells"]
    assert (whole["forecasts"], whole["measured"]) == (1, 0)
    for name in (cell["seal"][:8], f"{cell['seal'][:8]}#{cell['cell']}"):
        assert printed(sealed, "history", name, "--json")["cells"] == [whole]
    assert printed(sealed, "history", "matmul", "--shape", "M=64", "--hw", "t4", "--json")["cells"] == [whole]
    assert "1 forecast, 0 measured runs" in run(sealed, "history", "matmul").stdout
    for wrong in (["matmull"], ["matmul", "--shape", "M=1"], ["matmul", "--dtype", "fp8"], ["ffff"]):
        done = run(sealed, "history", *wrong)
        assert done.returncode == 2 and done.stderr.startswith("ledger: "), done.stderr


def test_an_audit_writes_a_page_for_an_interviewer(sealed: Path, tmp_path: Path):
    page = tmp_path / "audit.html"
    done = run(sealed, "audit", ".", "--page", str(page))
    assert done.returncode == 0 and f"wrote {page}" in done.stderr.replace("\n", "")
    text = page.read_text(encoding="utf-8")
    assert "1 open: sealed and not yet measured" in text and "1 undeclared" in text
    assert run(sealed, "audit", ".", "--page", str(tmp_path / "none" / "a.html")).returncode == 2


def test_a_comparison_takes_commits_or_gpus_and_names_what_it_does_not_know(sealed: Path):
    found = printed(sealed, "diff", "HEAD~1", "HEAD", "--json")
    assert (found["a"], found["same"]) == ({"kind": "commit", "name": "HEAD~1"}, 0)
    assert [row["kernel"] for row in found["only_b"]] == ["matmul"] and not found["only_a"]
    assert printed(sealed, "diff", "t4", "t4", "--json")["same"] == 1
    for wrong, said in (
        (("t4", "HEAD"), "t4 is a GPU and HEAD a commit; expected two of one kind"),
        (("t4", "h200"), "profile h200 has no cells in this ledger; expected one of: t4"),
        (("HEAD", "nothing"), "'nothing' is neither a campaign, nor the profile of a GPU, nor a commit"),
        (("--", "-p", "HEAD"), "'-p' is neither"),
    ):
        done = run(sealed, "diff", *wrong)
        assert done.returncode == 2 and said in done.stderr, done.stderr


def test_a_command_is_asked_for_alone_and_an_unknown_one_names_what_is_like_it():
    """Only the command that is named is inspected, so that any other word must find all of them."""
    assert "ledger kernels show [OPTIONS]" in run_ledger("kernels", "show", "--help", cwd=ROOT).stdout
    for words in (["scor"], ["--help", "score"], []):
        done = run_ledger(*words, cwd=ROOT)
        assert re.search(r"\bscore\b", done.stdout + done.stderr)
