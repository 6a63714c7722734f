"""Tests where a repository's own kernels are looked for, and which Python files there are kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.errors import InputError, UnknownName
from ledger.kernel_files import kernel_names, load_kernel, skipped_files
from ledger.kernel_folder import defines_kernel, own_folder
from ledger.workflow.init import found
from ledger.workflow.new_kernel import kernel_text, write_kernel


def project(root: Path, text: str) -> Path:
    (root / "pyproject.toml").write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize("text", ["", "[tool.other]\nkernels = 'x'\n", "[tool.ledger]\n", "[project]\nname = 'x'\n"])
def test_folder_is_kernels_unless_the_project_says_otherwise(tmp_path: Path, text: str):
    assert own_folder(tmp_path) == own_folder(project(tmp_path, text)) == tmp_path / "kernels"


def test_kernels_are_found_and_written_in_the_folder_that_the_project_names(tmp_path: Path):
    project(tmp_path, '[tool.ledger]\nkernels = "my/kernels"\n')
    assert write_kernel("mine", tmp_path) == tmp_path / "my/kernels/mine.py"
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "other.py").write_text(kernel_text("other"), encoding="utf-8")
    assert {"mine", "softmax"} <= set(kernel_names(tmp_path))
    assert "other" not in kernel_names(tmp_path)
    loaded = load_kernel("mine", tmp_path)
    assert (loaded.closure.entry, [one.path for one in loaded.closure.carried]) == (
        "my.kernels.mine",
        ["my/kernels/mine.py"],
    )


def test_init_makes_the_folder_that_the_project_names(tmp_path: Path):
    found(project(tmp_path, '[tool.ledger]\nkernels = "my/kernels"\n'))
    assert (tmp_path / "my/kernels/.gitkeep").is_file()
    assert not (tmp_path / "kernels").exists()


@pytest.mark.parametrize("value", ['"/tmp/x"', '"../x"', '"."', '""', '"a b"', "7", '["a"]'])
def test_folder_outside_the_repository_or_no_package_is_refused(tmp_path: Path, value: str):
    with pytest.raises(InputError, match=r"kernels is .*; expected a folder"):
        own_folder(project(tmp_path, f"[tool.ledger]\nkernels = {value}\n"))


@pytest.mark.parametrize("text", ["[tool", "a = " + "[" * 5000, "\ud800"])
def test_project_file_that_is_no_toml_is_refused(tmp_path: Path, text: str):
    (tmp_path / "pyproject.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError, match="is not TOML"):
        own_folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "is_kernel"),
    [
        ("KERNEL = 1\n", True),
        ("KERNEL: object = 1\n", True),
        ("from .other import KERNEL\n", True),
        ("import a as KERNEL\n", True),
        ("if True:\n    KERNEL = 1\n", True),
        ("A, KERNEL = 1, 2\n", True),
        ("KERNEL = (\n", True),
        ("def helper():\n    KERNEL = 1\n", False),
        ("class A:\n    KERNEL = 1\n", False),
        ("print(KERNEL)\n", False),
        ("# KERNEL = 1\n", False),
        ('"""KERNEL"""\n', False),
        ("x = (\n", False),
        ("", False),
    ],
)
def test_kernel_file_binds_kernel_at_its_top_level(tmp_path: Path, text: str, is_kernel: bool):
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    assert defines_kernel(tmp_path / "a.py") is is_kernel


def test_ordinary_files_are_skipped_by_name_and_named_when_asked_for(tmp_path: Path):
    write_kernel("mine", tmp_path)
    (tmp_path / "kernels" / "helper.py").write_text("raise SystemExit\n", encoding="utf-8")
    (tmp_path / "kernels" / "tools").mkdir()
    (tmp_path / "kernels" / "tools" / "__init__.py").write_text("", encoding="utf-8")
    assert [path.relative_to(tmp_path).as_posix() for path in skipped_files(tmp_path)] == [
        "kernels/helper.py", "kernels/tools/__init__.py",
    ]  # fmt: skip
    assert "helper" not in kernel_names(tmp_path)
    assert load_kernel("mine", tmp_path).kernel.name == "mine"
    with pytest.raises(UnknownName, match=r"helper\.py: no constant KERNEL"):
        load_kernel("helper", tmp_path)


def test_an_ordinary_file_does_not_hide_a_shipped_kernel(tmp_path: Path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "softmax.py").write_text("import this_is_not_there\n", encoding="utf-8")
    assert load_kernel("softmax", tmp_path).shipped


@pytest.mark.parametrize("name", ["Mine", "1st", "a-b", "class", "common", "_x", "a" * 65, "../x", ""])
def test_new_kernel_refuses_a_name_that_no_kernel_can_have(tmp_path: Path, name: str):
    with pytest.raises(InputError, match="expected a name of small letters"):
        write_kernel(name, tmp_path)
    assert not list(tmp_path.rglob("*.py"))


def test_new_kernel_overwrites_nothing_and_takes_no_shipped_name(tmp_path: Path):
    write_kernel("mine", tmp_path).write_text("KERNEL = 1\n", encoding="utf-8")
    with pytest.raises(InputError, match="exists; expected a name that is free"):
        write_kernel("mine", tmp_path)
    assert (tmp_path / "kernels" / "mine.py").read_text(encoding="utf-8") == "KERNEL = 1\n"
    with pytest.raises(InputError, match="'softmax' ships with the package"):
        write_kernel("softmax", tmp_path)


def test_new_kernel_is_under_120_lines_formatted_and_loads_without_torch(tmp_path: Path):
    import subprocess
    import sys

    text = kernel_text("my_kernel")
    assert len(text.splitlines()) < 120
    assert "NEW_KERNEL" not in text
    config = Path(__file__).parents[1] / "pyproject.toml"
    command = [sys.executable, "-m", "ruff", "format", "--check", "--config", str(config), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert load_kernel("my_kernel", write_kernel("my_kernel", tmp_path).parents[1]).kernel.cases
