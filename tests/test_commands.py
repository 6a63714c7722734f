"""Walks every command of the application: it has help, `--json` where it says something, and a section in the guide."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from ledger.cli.app import app

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ledger ([a-z ]+)\n(.*?)(?=^## |\Z)", GUIDE, re.MULTILINE | re.DOTALL))
WITHOUT_JSON = {"init"}  # prints what it made, one path a line
PREDICT = "predict matmul --hw t4 --dtype fp16 --shape M=64,N=64,K=64 --regime launch-bound --pct 2 --json"
ENVIRONMENT = {
    **os.environ,
    **{f"GIT_{role}_{field}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")},
    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
}


def walk(command, name: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    if hasattr(command, "commands"):
        for key, below in command.commands.items():
            yield from walk(below, (*name, key))
    else:
        yield " ".join(name), command


COMMANDS = dict(walk(typer.main.get_command(app)))


def options(name: str) -> dict[str, object]:
    """Return a command's options by their long name, except --help."""
    return {
        max(p.opts, key=len): p for p in COMMANDS[name].params if p.param_type_name == "option" and p.name != "help"
    }


def test_guide_has_a_section_for_each_command_and_no_other():
    assert set(SECTIONS) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_says_what_it_does_in_one_sentence(name: str):
    words = COMMANDS[name].help or ""
    assert words.endswith(".") and len(words.splitlines()) == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str):
    assert not [option for option, parameter in options(name).items() if not parameter.help]


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_json(name: str):
    assert ("--json" in options(name)) == (name not in WITHOUT_JSON)


@pytest.mark.parametrize("name", COMMANDS)
def test_guide_tells_every_option_and_only_those(name: str):
    # What stands in a command line of another program (ncu) is no option of ours.
    text = re.sub(r"`ncu [^`]*`", "", SECTIONS[name])
    assert set(re.findall(r"`(--[a-z-]+)`", text)) == set(options(name))


@pytest.mark.parametrize("name", COMMANDS)
def test_guide_tells_how_it_exits(name: str):
    assert re.search(r"Exit(?:s|:) 0", SECTIONS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_readme_or_guide_for_users_names_the_command(name: str):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"ledger {name}" in readme or f"`{name}`" in readme or f"ledger {name}" in GUIDE


def told_keys(name: str) -> list[str]:
    """Return the keys that the guide names behind a command's --json, up to the first semicolon."""
    told = re.search(r"^- `--json`: (.*?)(?=^- |\Z)", SECTIONS[name], re.MULTILINE | re.DOTALL)
    assert told is not None
    return re.findall(r"`([a-z_0-9]+)`", told[1].partition(";")[0])


def run(folder: Path, *arguments: str, width: int = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ledger", *arguments],
        cwd=folder,
        env={**ENVIRONMENT, "COLUMNS": str(width)},
        capture_output=True,
        text=True,
        check=False,
    )


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
    assert list(told[0]) == told_keys("predict")
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "report", "status", "log", "score", "roofline --hw t4", "audit", "hardware list", "hardware show t4",
        "kernels list", "kernels show matmul", "doctor", "challenge", "order",
        "drill --from {ROOT}",
    ],
)  # fmt: skip
def test_json_holds_what_the_guide_says(sealed: Path, command: str):
    name = max((name for name in COMMANDS if f"{command} ".startswith(f"{name} ")), key=len)
    value = printed(sealed, *command.format(ROOT=ROOT).split(), "--json")
    first = value[0] if isinstance(value, list) else value
    assert list(first) == told_keys(name)
    assert isinstance(value, list) == ("a list of" in SECTIONS[name])


def test_an_order_carries_a_challenge(sealed: Path, tmp_path: Path):
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
    assert "wrote 4 pages" in run(sealed, "report", "--site", str(folder)).stderr
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
