"""Tests a comparison of two commits on this CPU: what is skipped, what is timed, what is called and what fails."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ledger_process import run_ledger
from measuring import this_cpu, with_small_rotation
from two_commits import OPS, ROOT, WHO, WRONG, Scratch

from ledger.errors import InputError
from ledger.record_files import hardware_yaml
from ledger.render.comparison_text import render_markdown, summary_lines
from ledger.workflow.compare_plan import Wanted
from ledger.workflow.compare_suite import suite_requests

CELL = {"shapes": ({"M": 64, "N": 96, "K": 128},), "dtypes": ("fp32",)}
WORSE = (
    "if extra.shape[0]:",
    "for _ in range(3):\n            torch.matmul(a, b, out=out)\n        if extra.shape[0]:",
)


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    (tmp_path / "repository").mkdir()
    return Scratch(tmp_path / "repository")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rotate over few bytes and take few rounds; doubled work is still seen."""
    pytest.importorskip("torch", reason="torch is not installed: nothing can be timed")
    from ledger.measure import comparison, comparison_effort

    with_small_rotation(monkeypatch)
    from ledger.measure import contestants

    monkeypatch.setattr(comparison, "parameters_of", contestants.parameters_of)
    effort = replace(comparison_effort.ON_CPU, min_rounds=80, max_rounds=240, budget_s=3.0, least=0.1, most=0.5)
    monkeypatch.setattr(comparison, "ON_CPU", effort)


def compared(
    scratch: Scratch, base: str, head: str, wanted: Wanted | None = None, *, time: bool = True
) -> dict[str, Any]:
    from ledger.workflow.compare import compare, document_of
    from ledger.workflow.compare_plan import plan
    from ledger.workflow.revisions import two_sides

    wanted = wanted or Wanted(**CELL, threads=1)
    with two_sides(scratch.folder, base, head) as (first, second):
        planned = plan(first, second, this_cpu(), wanted, on_progress=lambda _text: None)
        if not time:
            return document_of(planned, first, second, this_cpu())
        return compare(planned, first, second, this_cpu(), on_progress=lambda _text: None)


def verdicts(document: dict[str, Any]) -> list[str]:
    return [row["verdict"] for row in document["rows"]]


def test_work_done_four_times_is_slower_and_the_other_way_round_faster(scratch: Scratch, quick: None):
    scratch.kernel("worse", WORSE)
    found = compared(scratch, "first", "worse")
    (row,) = found["rows"]
    assert row["verdict"] == "slower" and row["runs"] == 2 and row["high"] < 0.6 < row["ratio"] / row["low"] * 0.7
    assert row["base_us"] < row["head_us"] and row["pct_of_roof"] > 0
    text = render_markdown(found)
    assert "| SLOWER |" in text and "| case | before µs |" in text and "at most 1% of comparisons" in text
    assert verdicts(compared(scratch, "worse", "first")) == ["faster"]


def test_a_wrong_result_fails_however_fast(scratch: Scratch, quick: None):
    scratch.kernel("wrong", WRONG)
    found = compared(scratch, "first", "wrong")
    assert verdicts(found) == ["wrong"] and "largest absolute error" in found["rows"][0]["failure"]
    assert found["rows"][0]["ratio"] is None and "WRONG" in render_markdown(found)
    # Its own tolerance does not excuse it: the base's counts.
    scratch.kernel("excused", WRONG, ('"fp32": Tolerance(1e-4, 1e-4', '"fp32": Tolerance(9.0, 9.0'))
    assert verdicts(compared(scratch, "first", "excused")) == ["wrong"]
    assert verdicts(compared(scratch, "wrong", "first")) == ["base-failed"]


def test_a_kernel_that_raises_or_does_not_load_fails(scratch: Scratch, quick: None):
    scratch.kernel("raises", ("extra = a[", "raise ValueError('no')\n    extra = a["))
    scratch.kernel("broken", ("EXTRA = 0", "EXTRA = nothing"))
    assert verdicts(compared(scratch, "first", "raises")) == ["failed"]
    found = compared(scratch, "first", "broken")
    assert verdicts(found) == ["failed"] and "nothing" in found["rows"][0]["failure"]


def test_markdown_of_a_failure_mentions_links_and_shows_nothing(scratch: Scratch, quick: None):
    words = "x` @everyone ![x](http://evil/x.png) [a](javascript:1) <b> | www.evil.example"
    scratch.kernel("raises", ("extra = a[", f"raise ValueError({words!r})\n    extra = a["))
    found = compared(scratch, "first", "raises")
    text = render_markdown(found)
    assert words in found["rows"][0]["failure"]
    assert r"x\` `@`everyone \!\[x\](http&#58;//evil/x\.png) \[a\](javascript:1) \<b\> \| www\.evil\." in text


def test_what_cannot_differ_is_not_timed(scratch: Scratch):
    scratch.kernel("comment", ("EXTRA = 0", "EXTRA = 0  # none"))
    scratch.kernel("gpu", ("rows = (tl", "rows = 0 + (tl"))
    scratch.kernel("host", ("EXTRA = 0", "EXTRA = 1"))
    scratch.commit("gone", {"kernels/product.py": None})
    for base, head, reason in (
        ("first", "first", "unchanged"),
        ("first", "comment", "comments"),
        ("first", "gpu", "gpu code on a CPU"),
        ("first", "gone", "removed"),
        ("gone", "first", "new"),
    ):
        found = compared(scratch, base, head, time=False)
        assert [one["reason"] for one in found["skipped"]] == [reason] and not found["to_time"], (base, head)
    found = compared(scratch, "first", "host", time=False)
    assert found["to_time"] == [{"subject": "product", "shape": CELL["shapes"][0], "dtype": "fp32", "listed": "both"}]
    assert any(line.startswith("to time: product") for line in summary_lines(found))
    everything = Wanted(**CELL, everything=True)
    assert len(compared(scratch, "first", "first", everything, time=False)["to_time"]) == 1


SMALL, LARGE = "{'M': 64, 'N': 96, 'K': 128}", "{'M': 64, 'N': 96, 'K': 256}"


def with_cases(*cases: str) -> tuple[str, str]:
    return "cases=(", f"cases=({''.join(f'{case}, ' for case in cases)}) if True else ("


def test_a_case_that_head_no_longer_lists_is_timed(scratch: Scratch, quick: None):
    one_dtype = ('dtypes=("fp16", "fp32")', 'dtypes=("fp32",)')
    scratch.kernel("both", with_cases(SMALL, LARGE), one_dtype)
    slower = ("if extra.shape[0]:", "for _ in range(3 * (a.shape[1] > 128)):\n            torch.matmul(a, b, out=out)")
    scratch.kernel("fewer", with_cases(SMALL), one_dtype, slower)
    found = compared(scratch, "both", "fewer", Wanted(threads=1))
    small, large = found["rows"]
    assert [row["shape"]["K"] for row in (small, large)] == [128, 256]
    assert (small["listed"], large["listed"], large["verdict"]) == ("both", "base", "slower")
    assert "removed from the cases, compared all the same: product M=64 N=96 K=256 fp32" in summary_lines(found)
    scratch.kernel("none", with_cases(), one_dtype)
    found = compared(scratch, "both", "none", Wanted(), time=False)
    assert [(row["shape"]["K"], row["listed"]) for row in found["to_time"]] == [(128, "base"), (256, "base")]
    found = compared(scratch, "none", "both", Wanted(), time=False)
    assert [row["listed"] for row in found["to_time"]] == ["head", "head"]
    assert any(line.startswith("added to the cases, compared all the same: product") for line in summary_lines(found))


def test_a_case_that_head_cannot_run_any_more_fails_the_gate(scratch: Scratch):
    from ledger.workflow.compare import failing

    scratch.kernel("both", with_cases(SMALL))
    scratch.kernel("fp32", with_cases(SMALL), ('dtypes=("fp16", "fp32")', 'dtypes=("fp32",)'))
    found = compared(scratch, "both", "fp32", Wanted(), time=False)
    assert failing(found) == ["product M=64 N=96 K=128 fp16 failed"]
    assert "dtype fp16 is not offered" in found["rows"][0]["failure"]
    # The other way round nothing is lost.
    found = compared(scratch, "fp32", "both", Wanted(), time=False)
    assert not failing(found) and [one["reason"] for one in found["skipped"]] == ["new"]


def test_a_callable_that_describes_itself_with_less_is_timed_as_before(scratch: Scratch):
    scratch.commit("less", {"mypkg/ops.py": OPS.replace('"B": 64', '"B": 1').replace("* y", "* (y + 0)")})
    wanted = Wanted(names=("mypkg.ops:swiglu",))
    found = compared(scratch, "first", "less", wanted, time=False)
    assert [(row["shape"]["B"], row["listed"]) for row in found["to_time"]] == [(1, "head"), (64, "base")]
    asked = replace(wanted, shapes=({"B": 8},))
    assert [row["listed"] for row in compared(scratch, "first", "less", asked, time=False)["to_time"]] == ["both"]


def test_gpu_code_with_equal_machine_code_is_compiled_and_skipped(scratch: Scratch):
    pytest.importorskip("triton", reason="triton is not installed: nothing can be compiled")
    from ledger.record_files import load_hardware
    from ledger.workflow.compare_plan import plan
    from ledger.workflow.revisions import two_sides

    text = (ROOT / "kernels" / "vector_add.py").read_text()
    renamed = text.replace("start = tl", "first = tl").replace("= start +", "= first +").replace("if start", "if first")
    for tag, version in (("plain", text), ("renamed", renamed), ("other", text.replace("(a + b)", "(b + a * 1.5)"))):
        scratch.commit(tag, {"kernels/vector_add.py": version})
    wanted = Wanted(names=("vector_add",), shapes=({"N": 4096},), dtypes=("fp16",))
    for head, timed in (("renamed", 0), ("other", 1)):
        with two_sides(scratch.folder, "plain", head) as (first, second):
            planned = plan(first, second, load_hardware("h200"), wanted, on_progress=lambda _text: None)
        assert len(planned.pairs) == timed, head
        assert [one.reason for one in planned.skipped] == ["same machine code"] * (1 - timed)


def test_a_callable_is_compared_with_the_base_as_its_reference(scratch: Scratch, quick: None):
    scratch.commit(
        "slow", {"mypkg/ops.py": OPS.replace("return ", "for _ in range(4):\n        F.silu(x) * y\n    return ")}
    )
    scratch.commit("wrong", {"mypkg/ops.py": OPS.replace("* y", "* y * 1.01")})
    wanted = Wanted(names=("mypkg.ops:swiglu",), threads=1)
    assert verdicts(compared(scratch, "first", "slow", wanted)) == ["slower"]
    # In float64 it agrees with itself; what counts is the result before.
    assert verdicts(compared(scratch, "first", "wrong", wanted)) == ["wrong"]
    assert [one["reason"] for one in compared(scratch, "first", "first", wanted)["skipped"]] == ["unchanged"]


def test_a_suite_names_the_cells(scratch: Scratch, tmp_path: Path):
    path = tmp_path / "suite.yaml"
    path.write_text(
        "campaign: gate\ncells:\n  - {kernel: product, dtype: fp32, shape: {M: [64, 128], N: 96, K: 128}}\n"
        "  - {kernel: product, hardware: h200, dtype: fp16, shape: {M: 64, N: 96, K: 128}}\n"
    )
    requests = suite_requests(path, "cpu")
    assert [one.shape["M"] for one in requests] == [64, 128]
    scratch.kernel("host", ("EXTRA = 0", "EXTRA = 1"))
    found = compared(scratch, "first", "host", Wanted(requests=requests), time=False)
    assert [one["shape"]["M"] for one in found["to_time"]] == [64, 128]
    path.write_text(path.read_text().replace("kernel: product, dtype", "kernel: product, hardware: cpu, dtype"))
    with pytest.raises(InputError, match="cells for cpu, h200 only; expected some for t4"):
        suite_requests(path, "t4")


def run(scratch: Scratch, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **WHO, "PYTHONPATH": path}
    return run_ledger("compare", *arguments, "--device", "cpu", cwd=scratch.folder, env=environment)


def test_command_prints_a_document_and_fails_the_gate_only_when_asked(scratch: Scratch, tmp_path: Path):
    pytest.importorskip("torch", reason="torch is not installed: no device is chosen")
    scratch.kernel("broken", ("EXTRA = 0", "EXTRA = nothing"))
    done = run(scratch, "first", "broken", "--json", "-o", str(tmp_path / "comment.md"))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (
        list(document)
        == (
            "schema base head device hardware date software load_average cases false_alarms_at_most rows skipped "
            "to_time"
        ).split()
    )
    assert "FAILED" in (tmp_path / "comment.md").read_text()
    failed = run(scratch, "first", "broken", "--fail-on-regress", "--markdown")
    assert failed.returncode == 1 and "1 of 1 cases failed the gate: product failed" in failed.stderr
    assert failed.stdout.startswith("### Performance")
    nothing = run(scratch, "broken", "first")
    assert nothing.returncode == 2 and "no verdict on 1 of 1 cases: product base failed" in nothing.stderr
    assert "base failed" in nothing.stdout


def test_command_takes_the_profile_of_the_base(scratch: Scratch):
    pytest.importorskip("torch", reason="torch is not installed: no device is chosen")
    profile = this_cpu()
    scratch.commit("renamed", {"hardware/cpu.yaml": hardware_yaml(this_cpu(title="from head")).decode()})
    done = run(scratch, "first", "renamed", "--plan", "--json")
    assert json.loads(done.stdout)["device"] == profile.title != "from head", done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("first", "nowhere"), "revision 'nowhere': names no commit"),
        (("first", "first", "nothing"), "kernel 'nothing': in neither first nor first"),
        (("first", "first", "--shape", "M=1,N=1,K=1"), "are of one subject"),
        (("first", "first", "product", "--suite", "x.yaml"), "expected the file alone"),
        (("first", "first", "nomodule:f"), "nomodule"),
    ],
)
def test_bad_input_is_named(scratch: Scratch, arguments: tuple[str, ...], message: str):
    pytest.importorskip("torch", reason="torch is not installed: no device is chosen")
    done = run(scratch, *arguments)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_a_folder_without_a_repository_is_named_before_the_device(tmp_path: Path):
    done = run_ledger("compare", "HEAD~1", cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 2 and "not in a git repository" in done.stderr


def test_the_page_quotes_what_was_measured():
    page = " ".join((ROOT / "docs" / "gate.md").read_text().split())
    gpu, cpu = json.loads((ROOT / "benchmarks" / "timer" / "comparisons.json").read_bytes())["runs"]

    def told(run: dict[str, Any]) -> tuple[int, int, int, int]:
        alarms = sum(row["call"] in ("faster", "slower") for row in run["equal"])
        found = sum(row["call"] == "slower" for row in run["slowed"])
        return alarms, len(run["equal"]), found, len(run["slowed"])

    alarms, equal, found, slowed = told(gpu)
    assert (
        f"{alarms} false alarms in {equal} comparisons, {found} of {slowed} slow-downs of {gpu['percent']:g}%" in page
    )
    times = [row["base_us"] for row in gpu["equal"]]
    assert f"cases of {min(times):.1f} to {max(times):.0f} µs" in page
    alarms, equal, found, slowed = told(cpu)
    streams = sum(row["kernel"] == "stream" for row in cpu["slowed"])
    low, high = cpu["load_average"]
    assert (
        f"at load {low:.0f} to {high:.0f}: {alarms} in {equal}, {found} of {slowed}, of which {streams} memory-bound"
        in page
    )
