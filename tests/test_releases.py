"""Tests which releases are supported, that others are named, and that what libraries print does not reach the user."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from argparse import Namespace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import compile_releases
import pytest

from ledger.errors import MachineError, explained, shortened
from ledger.kernel import Ahead, import_triton
from ledger.kernel_files import kernel_names, load_kernel
from ledger.kernels.common import gluon
from ledger.releases import TORCH, TRITON, TRITON_RELEASES, Supported

ROOT = Path(__file__).parent.parent


def run(*command: str, folder: Path, first: Path | None = None, **names: str) -> subprocess.CompletedProcess[str]:
    """Run Python with this ledger, and `first` in front of everything else."""
    paths = [str(first)] if first else []
    path = os.pathsep.join([*paths, str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **names},
        capture_output=True,
        text=True,
        check=False,
    )


def planted(folder: Path, version: str) -> Path:
    """Plant a triton of another release, with its metadata."""
    for name in ("triton", "triton/language", f"triton-{version}.dist-info"):
        (folder / name).mkdir(parents=True)
    (folder / "triton/__init__.py").write_text(f"__version__ = {version!r}\n", encoding="utf-8")
    (folder / "triton/language/__init__.py").write_text("", encoding="utf-8")
    metadata = f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n"
    (folder / f"triton-{version}.dist-info/METADATA").write_text(metadata, encoding="utf-8")
    return folder


# The ranges


@pytest.mark.parametrize("supported", [TRITON, TORCH], ids=lambda one: one.package)
def test_the_declared_ranges_are_those_that_the_code_reads(supported: Supported) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (declared,) = (
        need.partition(";")[0]
        for need in project["optional-dependencies"]["torch"]
        if re.match(rf"{supported.package}\b", need)
    )
    assert declared == supported.requirement


def test_the_makefile_installs_within_the_range() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"TORCH_RANGE := '{TORCH.requirement}'\n" in text
    fixed = re.search(r"torch==(\S+) triton==([\d.]+)\)", text)
    assert fixed is not None
    assert TORCH.holds(fixed[1]) and fixed[2] in TRITON_RELEASES


def test_every_listed_release_is_in_the_range_and_the_range_has_no_other_ends() -> None:
    assert all(TRITON.holds(release) for release in TRITON_RELEASES)
    ends = [tuple(map(int, TRITON_RELEASES[end].split(".")[:2])) for end in (0, -1)]
    assert ends == [TRITON.oldest, TRITON.newest]


@pytest.mark.parametrize("version", ["3.4.0", "3.5.1", "3.10.0", "4.0.0", "3", "unknown", ""])
def test_a_version_outside_is_not_held(version: str) -> None:
    assert not TRITON.holds(version)


@pytest.mark.parametrize("version", ["3.6.0", "3.9.4", "3.7.1+git0f1e", "3.8"])
def test_a_version_inside_is_held(version: str) -> None:
    assert TRITON.holds(version)


def test_the_pages_state_the_ranges() -> None:
    for page in ("README.md", "CHANGELOG.md"):
        words = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert f"Triton {TRITON}" in words and f"torch {TORCH}" in words, page


# Naming what is outside


@pytest.mark.parametrize("version", ["3.4.0", "3.10.0"])
def test_a_triton_outside_is_named_where_kernels_are_compiled(tmp_path: Path, version: str) -> None:
    done = run("-m", "ledger", "inspect", "matmul", "--json", folder=tmp_path, first=planted(tmp_path / "p", version))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"ledger: triton {version} is installed; expected 3.6 to 3.9, with which the kernels compile: "
        "pip install 'triton>=3.6,<3.10'\n"
    )


def test_a_triton_outside_hinders_nothing_that_compiles_nothing(tmp_path: Path) -> None:
    done = run("-m", "ledger", "kernels", "show", "matmul", folder=tmp_path, first=planted(tmp_path / "p", "3.4.0"))
    assert (done.returncode, done.stderr) == (0, "")


def test_doctor_names_a_triton_outside_and_its_remedy(tmp_path: Path) -> None:
    done = run("-m", "ledger", "doctor", "--json", folder=tmp_path, first=planted(tmp_path / "p", "3.10.0"))
    (found,) = (one for one in json.loads(done.stdout) if one["what"].startswith("python module triton"))
    assert found == {
        "what": "python module triton 3.10.0 is not supported; expected 3.6 to 3.9",
        "state": "broken",
        "remedy": "pip install 'triton>=3.6,<3.10'",
    }


def test_import_triton_keeps_what_the_user_says_of_fused_multiply_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    monkeypatch.delenv("TRITON_DEFAULT_FP_FUSION", raising=False)
    import_triton()
    assert os.environ["TRITON_DEFAULT_FP_FUSION"] == "1"
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    import_triton()
    assert os.environ["TRITON_DEFAULT_FP_FUSION"] == "0"


# What Gluon's releases call differently


def test_a_new_name_is_taken_before_an_old_one_that_only_raises() -> None:
    both = SimpleNamespace(__name__="tma", async_load="new", async_copy_global_to_shared="removed")
    old = SimpleNamespace(__name__="tma", async_copy_global_to_shared="old")
    assert gluon._first(both, "async_load", "async_copy_global_to_shared") == "new"
    assert gluon._first(old, "async_load", "async_copy_global_to_shared") == "old"


def test_a_release_with_no_known_name_is_an_error_and_never_another_variant() -> None:
    with pytest.raises(MachineError, match="tma has none of async_load, async_copy_global_to_shared"):
        gluon._first(ModuleType("tma"), "async_load", "async_copy_global_to_shared")


def test_no_kernel_names_what_differs_between_releases() -> None:
    different = re.compile(
        r"async_copy_(global|shared)_to|\._?reinterpret\(|experimental\.gluon\.language|triton\.__version__"
    )
    for path in (file for file in (ROOT / "kernels").rglob("*.py") if file.parent.name != "common"):
        assert not different.search(path.read_text(encoding="utf-8")), path


# Errors keep their last line


def test_shortened_text_keeps_its_first_and_last_words() -> None:
    text = "CompilationError: at 12:4: " + "line\n" * 1000 + "NameError('absent is not defined')"
    short = shortened(text, 400)
    assert len(short) == 400
    assert short.startswith("CompilationError: at 12:4:") and short.endswith("NameError('absent is not defined')")
    assert shortened("short", 400) == "short"


def test_an_error_is_explained_by_its_first_cause() -> None:
    try:
        try:
            try:
                raise RuntimeError("async_copy was removed; call async_load")
            except RuntimeError as error:
                raise TypeError("in the function") from error
        except TypeError as error:
            raise ValueError("at the call") from error
    except ValueError as error:
        assert explained(error, 400) == (
            "ValueError: at the call; caused by RuntimeError: async_copy was removed; call async_load"
        )
        assert explained(error, 60).endswith(" removed; call async_load")
    assert explained(ValueError("alone"), 400) == "ValueError: alone"


def test_the_record_of_a_failed_cell_keeps_the_end_of_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from ledger.measure import run_cell as cells

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("source line\n" * 1000 + "NameError('absent is not defined')")

    monkeypatch.setattr(cells, "_run", fail)
    one: Any = SimpleNamespace(case=SimpleNamespace(threads=1), protocol=SimpleNamespace(name="cold-cpu/1"))
    ignored: dict[str, Any] = {"facts": None, "launch_ps": None, "vary": False, "on_stage": print}
    failure = cells.run_cell(one, one, **ignored).failure
    assert failure is not None and len(failure) == 4000
    assert failure.startswith("RuntimeError: source line") and failure.endswith("NameError('absent is not defined')")


WRONG = """
import triton
import triton.language as tl


@triton.jit
def called(offsets):
    return offsets + absent(offsets)


@triton.jit
def wrong(x_ptr):
    offsets = tl.arange(0, 128)
{lines}
    tl.store(x_ptr + offsets, called(offsets))
"""


def test_a_compile_error_keeps_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from ledger.measure.compilation import compile_ahead

    lines = "\n".join(f"    offsets = offsets + {number}  # {'a long line ' * 8}" for number in range(40))
    (tmp_path / "wrong_kernel.py").write_text(WRONG.format(lines=lines), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import wrong_kernel

    ahead = Ahead(wrong_kernel.wrong, {"x_ptr": "*fp32"}, {}, {"num_warps": 4})
    with pytest.raises(MachineError, match=r"cannot compile for sm_90: CompilationError.*absent is not defined") as met:
        compile_ahead(ahead, "sm_90", None)
    assert len(str(met.value)) < 1100


def test_what_a_library_writes_while_it_fails_is_taken_and_else_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    from ledger.measure.compilation import stderr_held

    with stderr_held() as said:
        os.write(2, b"error: source and result must have the same size\n")
        assert said() == "error: source and result must have the same size\n"
    assert capfd.readouterr().err == ""
    with stderr_held():
        os.write(2, b"a warning\n")
    assert capfd.readouterr().err == "a warning\n"


# What libraries print


LEAVING = """
import atexit, os, sys
atexit.register(lambda: os.write(2, b"nanobind: leaked 4 instances!\\n"))
from ledger.cli import main
{triton}
sys.argv = ["ledger", "--version"]
main()
"""


@pytest.mark.parametrize(
    ("triton", "debug", "seen"),
    [("import types; sys.modules['triton'] = types.ModuleType('triton')", "", False),
     ("import types; sys.modules['triton'] = types.ModuleType('triton')", "1", True),
     ("", "", True)],
    ids=["with-triton", "with-triton-debug", "without-triton"],
)  # fmt: skip
def test_what_triton_lists_at_exit_does_not_reach_the_user(tmp_path: Path, triton: str, debug: str, seen: bool) -> None:
    done = run("-c", LEAVING.format(triton=triton), folder=tmp_path, LEDGER_DEBUG=debug)
    assert done.returncode == 0 and done.stdout.startswith("ledger ")
    assert ("leaked" in done.stderr) == seen


def test_a_trace_prints_nothing_of_the_profiler(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    code = (
        "from ledger.measure.timeline import Stretch, trace_stretches\n"
        "import torch\n"
        "print(len(trace_stretches([Stretch('one', 1, lambda: torch.ones(4) + 1)], device='cpu')[1]))\n"
    )
    done = run("-c", code, folder=tmp_path)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_inspect_prints_one_document_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    done = run("-m", "ledger", "inspect", "flash_attention", "--json", folder=tmp_path, TRITON_CACHE_DIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    (document,) = json.loads(done.stdout)
    assert document["kernel"] == "flash_attention"


# Compiling with each release


def campaign(folder: Path, release: str = "3.9.0") -> compile_releases.Campaign:
    return compile_releases.Campaign(Namespace(folder=folder, releases=[release], targets=["sm_90"]))


def entry(key: str, error: str | None) -> dict[str, Any]:
    return {"key": key, "target": "sm_90", "words": f"matmul {key}", "triton": "3.9.0", "error": error}


def test_a_build_that_fails_is_in_the_table_and_in_the_exit_code(tmp_path: Path, capsys: Any) -> None:
    one = campaign(tmp_path)
    one._note("3.9.0", entry("a", None))
    assert one.report() == 0
    one._note("3.9.0", entry("b", "RuntimeError('removed; call async_load instead')"))
    capsys.readouterr()
    assert one.report() == 1
    said = capsys.readouterr().out
    assert "1 of 2" in said
    assert "FAILED  triton 3.9.0  matmul b\n        RuntimeError('removed; call async_load instead')" in said


def test_a_campaign_goes_on_where_it_stopped_and_repeats_failures_and_changed_sources(tmp_path: Path) -> None:
    one = campaign(tmp_path)
    one._note("3.9.0", entry("a", None))
    one._note("3.9.0", entry("b", "wrong"))
    with one.log.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**entry("c", None), "sources": "others"}) + "\n" + '{"key": "d", ')
    assert campaign(tmp_path).kept == {"3.9.0": {"a"}}


def test_a_campaign_that_compiled_nothing_fails(tmp_path: Path) -> None:
    assert campaign(tmp_path).report() == 1


def test_a_release_that_is_not_what_its_folder_says_stops_the_campaign(tmp_path: Path) -> None:
    planted(tmp_path / "3.6.0", "3.5.0").joinpath("triton-3.5.0.dist-info").rename(
        tmp_path / "3.6.0" / "triton-3.6.0.dist-info"
    )
    script = str(ROOT / "tests" / "compile_releases.py")
    done = run(script, "--folder", str(tmp_path), "--releases", "3.6.0", "--jobs", "1", folder=tmp_path)
    assert done.returncode == 2
    assert "triton 3.5.0 is installed; expected 3.6 to 3.9" in done.stderr


def test_every_triton_function_of_the_cases_is_a_variant_of_its_own() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    kernels = [load_kernel(name, launch=True).kernel for name in kernel_names()]
    found = list(compile_releases.builds("sm_90", kernels))
    assert {build.variant[:2] for build in found} >= {
        ("matmul", "gemm_pipelined"),
        ("rmsnorm_matmul", "rmsnorm_matmul_warp_specialised"),
        ("decode_attention", "decode_attention_software_pipelined"),
        ("mla_decode", "mla_decode_warp_specialised"),
        ("flash_attention", "attention_warp_specialised"),
    }
    assert len({build.variant for build in found}) < len(found)
    # The result is staged in the buffers of the weights, which 3.8 refused at first, only without split-K.
    named = (build for build in found if "rmsnorm_matmul_warp_specialised" in build.variant)
    assert 1 in {dict(build.variant[3]).get("SPLIT_K") for build in named}
