"""Runs the steps of the GitHub Actions without GitHub, on this CPU, and checks the recipes beside them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from ledger_process import run_ledger
from two_commits import ROOT, WHO, WRONG, Scratch

from ledger.cli.app import app
from ledger.render.command_reference import options_of, walk

COMMANDS = dict(walk(typer.main.get_command(app)))
RECIPES = sorted((ROOT / "examples" / "ci").iterdir())


def action(path: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())
    return document


def step(path: str, name: str, folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """Run one step of a composite action with inputs; what GitHub passes is given by `github.NAME`."""
    document = action(path)
    inputs = {key: one["default"] for key, one in document["inputs"].items()} | {"python": sys.executable}
    unknown = {key for key in given if not key.startswith("github_")} - inputs.keys()
    assert not unknown
    values = {f"inputs.{key}": text for key, text in {**inputs, **given}.items()}
    values |= {key.replace("github_", "github.", 1): text for key, text in given.items() if key.startswith("github_")}
    (found,) = (one for one in document["runs"]["steps"] if one["name"] == name)
    environment = {
        key: re.sub(r"\$\{\{ (.*?) \}\}", lambda hit: values.get(hit[1], ""), text)
        for key, text in found["env"].items()
    }
    # A value in the script itself would be run as code.
    assert "${{" not in found["run"] and found["shell"] == "bash"
    temporary = folder.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    paths = {name: str(temporary / name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    path_list = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment |= {**WHO, **paths, "RUNNER_TEMP": str(temporary), "PYTHONPATH": path_list}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["run"]],
        cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def left(folder: Path, name: str) -> str:
    return (folder.parent / "temporary" / name).read_text()


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    pytest.importorskip("torch", reason="torch is not installed: nothing can be timed")
    (tmp_path / "repository").mkdir()
    made = Scratch(tmp_path / "repository")
    # Small on both sides: the cases of the base are timed too.
    small = ("cases=(", "cases=({'M': 256, 'N': 256, 'K': 512},) or (")
    made.kernel("small", small)
    made.kernel("wrong", small, WRONG)
    made.git("update-ref", "refs/remotes/origin/main", "small")
    return made


def test_compare_reports_and_fails_only_when_asked(scratch: Scratch):
    given = {"device": "cpu", "subjects": "product", "github_base_ref": "main"}
    done = step("action.yml", "Compare", scratch.folder, **given)
    assert done.returncode == 0, done.stderr
    assert "WRONG" in left(scratch.folder, "github_step_summary")
    outputs = dict(line.split("=", 1) for line in left(scratch.folder, "github_output").splitlines())
    document = json.loads(Path(outputs["json"]).read_text())
    assert {row["verdict"] for row in document["rows"]} == {"wrong"}
    assert "WRONG" in Path(outputs["markdown"]).read_text()
    assert step("action.yml", "Compare", scratch.folder, **given, fail="true").returncode == 1
    other = step("action.yml", "Compare", scratch.folder, device="cpu", base="nowhere; touch owned")
    assert other.returncode == 2 and "names no commit" in other.stderr and not (scratch.folder / "owned").exists()


def test_compare_reads_the_suite_from_the_base(scratch: Scratch):
    def suite(rows: int) -> str:
        return f"campaign: gate\ncells:\n  - {{kernel: product, dtype: fp32, shape: {{M: {rows}, N: 96, K: 128}}}}\n"

    scratch.commit("base", {"suite.yaml": suite(64)})
    kernel = (scratch.folder / "kernels" / "product.py").read_text() + "\nMORE = 1\n"
    scratch.commit("other", {"kernels/product.py": kernel, "suite.yaml": suite(32), "new.yaml": suite(16)})
    for name, rows in (("suite.yaml", 64), ("new.yaml", 16)):
        step("action.yml", "Compare", scratch.folder, device="cpu", base="base", suite=name)
        document = json.loads(left(scratch.folder, "comparison.json"))
        assert [row["shape"]["M"] for row in document["rows"]] == [rows]


def sealed(folder: Path) -> None:
    """Make a ledger with one seal."""
    folder.mkdir()
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

    def ledger(*arguments: str) -> None:
        run_ledger(*arguments, cwd=folder, env={**os.environ, **WHO, "PYTHONPATH": path}).check_returncode()

    ledger("init", ".")
    ledger(*"predict matmul --hw t4 --dtype fp16 --shape M=64,N=64,K=64 --regime launch-bound --pct 2".split())


def tamper(folder: Path) -> None:
    """Commit everything, with another percent in the seal."""
    (seal,) = folder.glob("predictions/??/*.json")
    seal.write_bytes(seal.read_bytes().replace(b'"percent_milli":2000', b'"percent_milli":3000'))
    for command in (["add", "-A"], ["commit", "-qm", "other"]):
        subprocess.run(["git", *command], cwd=folder, env={**os.environ, **WHO}, check=True)


def test_audit_writes_a_badge_of_its_verdict(tmp_path: Path):
    folder = tmp_path / "ledger"
    sealed(folder)
    for verdict, color, code in (("verified", "brightgreen", 0), ("refused", "red", 3)):
        done = step("actions/audit/action.yml", "Audit", folder)
        assert done.returncode == code, done.stderr
        badge = json.loads((folder / "ledger-badge.json").read_text())
        assert badge == {"schemaVersion": 1, "label": "ledger audit", "message": verdict, "color": color}
        if verdict == "verified":
            tamper(folder)


def test_audit_runs_no_code_of_the_repository_and_follows_no_link(tmp_path: Path):
    folder, outside, badge = tmp_path / "ledger", tmp_path / "outside", tmp_path / "ledger" / "ledger-badge.json"
    sealed(folder)
    planted(folder)
    outside.write_text("kept")
    badge.symlink_to(outside)
    tamper(folder)
    done = step("actions/audit/action.yml", "Audit", folder)
    assert done.returncode == 3 and "planted" not in done.stdout, done.stdout
    assert json.loads(badge.read_text())["message"] == "refused" and not badge.is_symlink()
    # Where a step before the audit fails, the repository's own badge is gone already.
    badge.unlink()
    badge.symlink_to(outside)
    assert step("actions/audit/action.yml", "Remove", folder).returncode == 0
    assert not badge.is_symlink() and outside.read_text() == "kept"


def test_a_python_without_ledger_is_unknown_and_a_challenge_without_answer_missed(tmp_path: Path):
    without = f"{sys.executable} -E -S"
    for python, options, verdict in ((without, "", "unknown"), ("false", "--challenge x", "missed")):
        done = step("actions/audit/action.yml", "Audit", tmp_path, python=python, options=options)
        assert done.returncode != 0 and ("No module named" in done.stderr) == (python == without)
        assert json.loads((tmp_path / "ledger-badge.json").read_text())["message"] == verdict


def planted(folder: Path) -> None:
    """Leave modules in a checkout that would run in place of the installed ones."""
    for name in ("ledger", "pip"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").touch()
        (folder / name / "__main__.py").write_text("print('planted')")


@pytest.mark.parametrize("path", ["action.yml", "actions/audit/action.yml"])
def test_steps_import_nothing_from_the_checkout(tmp_path: Path, path: str):
    planted(tmp_path)
    done = step(path, "Install", tmp_path, install="--version")
    assert "planted" not in done.stdout
    assert not re.search(r"\$PYTHON (?!-P )", (ROOT / path).read_text())


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_a_recipe_names_commands_options_and_inputs_that_exist(path: Path):
    text = path.read_text()
    for words in re.findall(r"^\s*-? ?(?:run: )?ledger (\w+[^|\n]*)$", text, re.MULTILINE):
        known = options_of(COMMANDS[words.split()[0]])
        assert {word for word in words.split() if word.startswith("--")} <= set(known), words
    if path.suffix == ".yml":
        document = yaml.safe_load(text)
        assert isinstance(document, dict)
        for job in document.get("jobs", {}).values():
            for one in job["steps"]:
                if (used := one.get("uses", "")).startswith("OWNER/ledger"):
                    folder = used.removeprefix("OWNER/ledger").partition("@")[0].strip("/")
                    inputs = action(str(Path(folder) / "action.yml"))["inputs"]
                    assert set(one.get("with", {})) <= set(inputs)
    else:
        subprocess.run(["bash", "-n", str(path)], check=True)
    assert "ledger" in text


def test_the_hook_audits_what_is_pushed(tmp_path: Path):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["pass_filenames"] is False
    folder, program = tmp_path / "ledger", tmp_path / "bin" / "ledger"
    sealed(folder)
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m ledger "$@"\n')
    program.chmod(0o755)

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, env={**os.environ, **WHO}, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("checkout", "-q", "-b", "changed")
    tamper(folder)
    changed = git("rev-parse", "HEAD")
    git("checkout", "-q", "-")

    def pushed(**told: str) -> int:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        search = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        # As pre-commit does: the entry is split into words, and a user's arguments follow.
        words = [*shlex.split(hook["entry"]), "--json"]
        environment = {**os.environ, "PYTHONPATH": path, "PATH": search, **told}
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert json.loads(done.stdout)["verdict"] == ("refused" if done.returncode else "holds"), done.stderr
        return done.returncode

    assert pushed() == 0
    assert pushed(PRE_COMMIT_TO_REF=changed, PRE_COMMIT_LOCAL_BRANCH="refs/heads/main") == 3
    # All of a history that the remote lacks is pushed: pre-commit gives no commit.
    assert pushed(PRE_COMMIT_LOCAL_BRANCH="refs/heads/changed") == 3
