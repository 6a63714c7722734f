"""Tests the checks of licences, locked versions and built distributions, each against something planted."""

from __future__ import annotations

import re
import tarfile
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from check_dist import differences, sdist_differences, shipped, wheel_differences
from check_licences import OURS, findings, is_permissive, required
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
EXTRAS = frozenset({"torch", "ncu", "plot", "drill", "time", "log"})
needs_metadata = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this copy has no git history")


def test_what_the_distribution_asks_for_is_permissive():
    try:
        distribution(OURS)
    except PackageNotFoundError:
        pytest.skip("the distribution is not installed here, so nothing says what it asks for")
    assert len(set(required(OURS, frozenset(), set()))) > 10
    assert findings(EXTRAS) == {}


@pytest.mark.parametrize(
    ("text", "permissive"),
    [
        ("MIT License", True), ("Apache-2.0 OR GPL-2.0-or-later", True), ("BSD-3-Clause", True),
        ("GPL-3.0-or-later", False), ("MIT AND LGPL-2.1-only", False), ("GNU General Public License v3 (GPLv3)", False),
        ("Mozilla Public License 2.0 (MPL 2.0)", False), ("", False), ("Proprietary", False),
    ],
)  # fmt: skip
def test_a_licence_is_judged_by_what_it_allows(text: str, permissive: bool):
    assert is_permissive("planted", text) == permissive


def locked() -> dict[str, str]:
    lines = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [re.fullmatch(r"([\w.-]+)==([\w.+!]+)", line) for line in lines]
    assert all(pairs), "expected NAME==VERSION alone: neither an index nor a path"
    return {str(canonicalize_name(pair[1])): pair[2] for pair in pairs if pair}


def test_each_direct_dependency_is_locked_within_its_range_and_the_platform_is_not():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"]]
    for extra in ("ncu", "plot", "drill", "log", "dev", "release"):
        asked += project["optional-dependencies"][extra]
    versions = locked()
    for requirement in map(Requirement, asked):
        version = versions[str(canonicalize_name(requirement.name))]
        assert requirement.specifier.contains(version), f"{requirement}: locked is {version}; run: make lock"
    assert not {"torch", "triton", "roofline-ledger"} & set(versions)


@needs_metadata
def test_a_missing_and_a_stray_file_of_a_distribution_are_named(tmp_path: Path):
    assert differences(["a", "c"], ["a", "b"]) == ["missing: b", "stray: c"]
    lost = "kernels/common/cuda.py"
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
        for name in shipped() | {"ledger/drills/recorded.json", "ledger/notes.txt", "x.dist-info/METADATA"}:
            if name != lost:
                archive.writestr(name if name.startswith("ledger/") else f"ledger/shipped/{name}", b"")
        archive.writestr("x.dist-info/RECORD", b"")
    found = wheel_differences(tmp_path / "w.whl")
    assert f"missing: ledger/shipped/{lost}" in found and "stray: ledger/notes.txt" in found
    with tarfile.open(tmp_path / "s.tar.gz", "w:gz") as archive:
        archive.add(ROOT / "LICENSE", "s-1/secret.txt")
    found = sdist_differences(tmp_path / "s.tar.gz")
    assert "stray: secret.txt" in found and "missing: pyproject.toml" in found


def test_workflows_name_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for line in re.findall(r"run: make ([a-z -]+)", path.read_text(encoding="utf-8")):
            for target in line.split():
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{path.name}: make {target}"
