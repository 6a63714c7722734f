"""Tests how tests/gpu/sanitize.py reads compute-sanitizer, on what it printed on an H200, and what it launches."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import pytest
from gpu import sanitize
from gpu.sanitize import Run, gluon_function, known, reports, summary
from kernel_suite import KERNELS
from mutants.checker import source_file

from ledger.kernel_files import load_kernel

OLD, NEW = (2025, 3), (2026, 4)


def line_of(path: Path, text: str) -> int:
    """Return the number of the source line that holds a text: recorded reports are read at today's lines."""
    (found,) = [number for number, line in enumerate(path.read_text().splitlines(), 1) if text in line]
    return found


def place_of(kernel: str, text: str) -> str:
    """Return file and line of a text, in one of the kernel's own modules or in the device code that it shares."""
    shared = KERNELS / "common"
    own = sorted(path for path in source_file(kernel).parent.glob("*.py") if path.parent != KERNELS)
    for path in (source_file(kernel), *own, shared / "attention_device.py", shared / "gemm_device.py"):
        if text in path.read_text():
            return f"{path.name}:{line_of(path, text)}"
    raise AssertionError(text)


def race(kernel: str, first: tuple[str, str], *others: tuple[str, str]) -> str:
    """Return a report as racecheck prints it, of accesses (Read or Write, text of the source line)."""
    places = [
        f"{kind} access at {gluon_function(kernel)}+0x{256 * at:x} in {place_of(kernel, text)}"
        for at, (kind, text) in enumerate((first, *others), 1)
    ]
    rest = [f"=========     and {place} [{7 * at} hazards]" for at, place in enumerate(places[1:], 1)]
    return "\n".join([f"========= Error: Race reported between {places[0]}", *rest, "========= "])


DISPATCH = race("matmul", ("Read", "def gemm_pipelined("), ("Write", "    gl.warp_specialize("))
BLOCKS = race(
    "flash_attention",
    ("Write", "blocks.index(slot).store(gl.full([1], index"),
    ("Read", "index = gl.max(blocks.index(0).load(one), axis=0)"),
    # The second group's code has no line of its own.
    ("Read", "def attention_warp_specialised("),
)
# As printed by 2025.3.1, but for the offsets.
KEPT = """\
========= Error: Race reported between Read access at float read<(unsigned int)229376>(unsigned int)+0x100 in {0}:{1}
=========     and Write access at void write<(unsigned int)229376>(unsigned int, float)+0x200 in {0}:{2} [8 hazards]
========= """
SQUARES = race("rmsnorm_matmul", ("Write", "squares.index(FIRST).store("), ("Read", "squares.index(0).load("))


@pytest.mark.parametrize(
    ("text", "kernel", "release", "expected"),
    [
        (DISPATCH, "matmul", OLD, "Triton's dispatch"),
        # A release that follows it reports what must be looked at.
        (DISPATCH, "matmul", NEW, None),
        (BLOCKS, "flash_attention", NEW, "one thread arrives for all"),
        # The same place in another kernel is not known.
        (BLOCKS, "matmul", NEW, None),
        (SQUARES, "rmsnorm_matmul", OLD, None),
    ],
    ids=("dispatch", "dispatch-new", "arrival", "arrival-elsewhere", "squares"),
)
def test_a_report_is_known_by_its_place_alone(text: str, kernel: str, release: tuple[int, int], expected: str) -> None:
    (report,) = reports(text)
    assert known(report, kernel=kernel, release=release) == expected


def test_what_a_lane_arrives_for_in_cuda_cpp_is_known_by_the_line_that_stores() -> None:
    def kind(kernel: str, offset: int) -> str | None:
        cuda = source_file("mla_decode").with_name("cluster.cu")
        read, write = (line_of(cuda, f'asm volatile("{op}.shared.f32') for op in ("ld", "st"))
        (report,) = reports(KEPT.format("mla_decode_cluster", read, write + offset))
        return known(report, kernel=kernel, release=NEW)

    assert kind("mla_decode", 0) == "one lane arrives for its warp"
    assert kind("mla_decode", 1) is None
    assert kind("matmul", 0) is None


# As printed by 2025.3, but for the offsets.
COPIED = """\
========= Error: Race reported between Write access at copy_float(unsigned int, const float *)+0x100 in {0}:{1}
=========     and Read access at load_word(unsigned int)+0x200 in hopper.cuh:{2} [1152 hazards]
========= """


def test_what_a_lane_arrives_for_before_a_copy_is_known_by_the_line_that_copies() -> None:
    cuda, header = source_file("matmul_fp8_blocks").with_name("cluster.cu"), KERNELS / "common" / "hopper.cuh"
    copies, reads = line_of(cuda, "cp.async.ca.shared.global"), line_of(header, '"ld.shared.u32 %0')

    def kind(kernel: str, offset: int) -> str | None:
        (report,) = reports(COPIED.format("matmul_fp8_blocks_cluster", copies + offset, reads))
        return known(report, kernel=kernel, release=OLD)

    assert kind("matmul_fp8_blocks", 0) == "one lane arrives for its warp"
    assert kind("matmul_fp8_blocks", 1) is None
    assert kind("mla_decode", 0) is None


def test_a_known_place_beside_another_write_is_a_finding() -> None:
    mixed = race(
        "flash_attention",
        ("Write", "blocks.index(slot).store(gl.full([1], index"),
        ("Write", "def attention_warp_specialised("),
    )
    (report,) = reports(mixed)
    assert known(report, kernel="flash_attention", release=NEW) is None


# As printed by 2025.3.1 of layernorm and of a minimal kernel without any order.
WRITES = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at layernorm_kernel+0xf80 in layernorm.py:163
=========     and Write access at layernorm_kernel+0xf80 in layernorm.py:163 [49 hazards]
LAUNCHED layernorm 7 WRONG 0
LAUNCHED rmsnorm 5 WRONG 0
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def run(text: str, trouble: str = "") -> Run:
    return Run("racecheck", text, trouble, 1.0)


def test_a_finding_is_counted_for_its_own_kernel() -> None:
    line, found = summary("layernorm", [run(WRITES)], release=NEW)
    assert line.endswith("7 launches     1 s  1 REPORTS")
    assert found == [
        "1 × Error: Race reported between Write access at layernorm_kernel in layernorm.py:163 "
        "and Write access at layernorm_kernel in layernorm.py:163"
    ]
    line, found = summary("rmsnorm", [run(WRITES)], release=NEW)
    assert line.endswith("5 launches     1 s  clean")
    assert not found


def test_known_reports_are_printed_and_are_no_findings() -> None:
    line, found = summary("matmul", [run(DISPATCH + "\nLAUNCHED matmul 3 WRONG 0\n")], release=OLD)
    assert line.endswith("1 of Triton's dispatch")
    assert not found


@pytest.mark.parametrize(
    ("text", "trouble", "says"),
    [
        ("LAUNCHED matmul 3 WRONG 1\n", "", "wrong result"),
        ("Traceback\n", "", "did not end"),
        ("LAUNCHED matmul 3 WRONG 0\n", "not done after 9 s", "not done after 9 s"),
        # A report in words that nobody foresaw, and one that names no kernel.
        ("LAUNCHED matmul 3 WRONG 0\n========= ERROR SUMMARY: 2 errors\n", "", "2 errors, of which 0 were read"),
        ("========= Program hit CUDA_ERROR_LAUNCH_FAILED\nLAUNCHED matmul 3 WRONG 0\n", "", "1 REPORTS"),
    ],
)
def test_a_run_that_proves_nothing_is_not_clean(text: str, trouble: str, says: str) -> None:
    line, found = summary("matmul", [run(text, trouble)], release=NEW)
    assert says in line
    assert "clean" not in line
    assert found


def test_one_of_two_shares_that_did_not_end_is_not_clean() -> None:
    line, found = summary("matmul", [run("LAUNCHED matmul 3 WRONG 0\n"), run("")], release=NEW)
    assert "did not end" in line
    assert found


def way(config: Mapping[str, int | str]) -> int | str | None:
    """Return what tells apart the implementations of a kernel."""
    return config.get("variant", config.get("pipeline"))


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("name", sanitize.kernel_names())
def test_every_path_of_a_kernel_is_launched(name: str) -> None:
    kernel = load_kernel(name, launch=True).kernel
    trials = list(sanitize.launches(name))
    for trial in trials:
        kernel.check_config(trial.config, trial.shape, trial.dtype, sanitize.TARGET)  # type: ignore[arg-type]
    shapes = (*kernel.cases, *(trial.shape for trial in trials))
    own = {way(kernel.config(shape, trial.dtype, sanitize.TARGET)) for shape in shapes for trial in trials[:1]}  # type: ignore[arg-type]
    assert own <= {way(trial.config) for trial in trials}
