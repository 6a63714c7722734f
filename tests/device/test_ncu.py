"""Tests device.ncu and its parser: recorded pages, damaged ones, and the reason when ncu cannot be used."""

import json
import stat
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from measuring import cell_of, kernel_file, this_cpu

from ledger.analysis.metrics import metric_names
from ledger.device import ncu, ncu_process
from ledger.device.ncu_csv import parse_raw
from ledger.device.ncu_process import Done, explain, run_command
from ledger.errors import MachineError, ParseError
from ledger.records import ProfiledKernel

ASSETS = Path(__file__).parents[1] / "assets" / "ncu"
WANTED = metric_names("9.0")
RAW = (ASSETS / "big_gemm.csv").read_text()


def parse(text: str) -> tuple[ProfiledKernel, ...]:
    return parse_raw(text, wanted=WANTED, what="report")


def test_the_newest_of_several_ncu_is_taken(tmp_path, monkeypatch):
    for folder, said in (("cuda-9.2", "Version 9"), ("cuda-12.8", "Version 2025.1.1.0"), ("nsight", "Version 2024.3")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ncu").write_text(f"#!/bin/sh\necho {said}\n")
        (tmp_path / folder / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(ncu, "_FOLDERS", (f"{tmp_path}/cuda-*", f"{tmp_path}/nsight"))
    assert ncu.find_ncu() == ncu.Ncu(str(tmp_path / "cuda-12.8/ncu"), "2025.1.1.0")
    for folder in ("cuda-12.8", "nsight"):
        (tmp_path / folder / "ncu").unlink()
    with pytest.raises(MachineError, match="answered 'Version 9'"):
        ncu.find_ncu()


# The parser


def test_parse_raw_keeps_values_as_printed():
    (kernel,) = parse(RAW)
    assert kernel.name.startswith("nvjet_sm90")
    assert kernel.metrics["gpu__time_duration.sum"].unit == "ns"
    assert kernel.metrics["gpu__time_duration.sum"].value in RAW
    assert set(kernel.metrics) <= set(WANTED)


def test_parse_raw_finds_columns_by_name():
    lines = [line.split('","') for line in RAW.strip().strip('"').split('"\n"')]
    turned = "\n".join('"' + '","'.join([row[0], *reversed(row[1:])]) + '"' for row in lines)
    assert parse(turned) == parse(RAW)


def test_parse_raw_skips_lines_before_the_header():
    assert parse("==PROF== Connected to process 7\n\n" + RAW) == parse(RAW)


def test_parse_raw_reads_several_kernels_in_order():
    last = RAW.splitlines()[-1]
    assert len(parse(RAW + last.replace("nvjet", "splitk") + "\n")) == 2


DAMAGED = {
    "empty": ("", "no header row"),
    "only-words": ("==ERROR== The file is not a report\n", "==ERROR== The file is not a report"),
    "foreign": ("a,b,c\n1,2,3\n", "no header row"),
    "no-kernel-column": (RAW.replace('"Kernel Name"', '"Function"'), "no column 'Kernel Name'"),
    "no-unit-row": ("\n".join([RAW.splitlines()[0], RAW.splitlines()[2]]), "no unit row"),
    "no-kernel": ("\n".join(RAW.splitlines()[:2]), "contains no kernel"),
    "header-only": (RAW.splitlines()[0], "no unit row"),
    "truncated-row": (RAW[: len(RAW) - 200], "truncated|not CSV"),
    "column-twice": (RAW.replace("dram__bytes_read.sum", "dram__bytes.sum"), "duplicate column"),
    "binary": ("\x00NVR\x01\x02\x03", "no header row"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_parse_raw_refuses_damage(damage):
    text, said = DAMAGED[damage]
    with pytest.raises(ParseError, match=said):
        parse(text)


# Cells of one report


def named(*names: str) -> list[ProfiledKernel]:
    return [ProfiledKernel(name=name, metrics={}) for name in names]


def test_parse_raw_refuses_control_characters_in_a_value():
    value = parse(RAW)[0].metrics["gpu__time_duration.sum"].value
    with pytest.raises(ParseError, match="no profiler prints"):
        parse(RAW.replace(f'"{value}"', f'"\0{value}"'))


def test_split_gives_each_cell_the_kernels_after_its_marker():
    kernels = named("ledger_marker", "gemm", "reduce", "ledger_marker", "ledger_marker", "gemm")
    groups = ncu._split(kernels, 4)
    assert [[kernel.name for kernel in group] for group in groups] == [["gemm", "reduce"], [], ["gemm"], []]


def test_split_of_one_cell_needs_no_marker():
    assert [kernel.name for kernel in ncu._split(named("gemm"), 1)[0]] == ["gemm"]


@pytest.mark.parametrize("names", [("gemm", "ledger_marker"), ("ledger_marker",) * 3])
def test_split_refuses_kernels_of_no_cell(names):
    with pytest.raises(ParseError):
        ncu._split(named(*names), 2)


def test_a_kernel_that_the_cell_does_not_launch_is_refused():
    request = ncu.ProfileRequest(cell_of(this_cpu()), kernel_file())
    assert ncu._mismatch(request, named("sgemm_128x64")) == ""
    assert "holds kernel 'softmax'" in ncu._mismatch(request, named("sgemm_128x64", "softmax"))


# When ncu cannot be used


def an_ncu_that(tmp_path: Path, script: str) -> None:
    path = tmp_path / "ncu"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_profile_reports_a_missing_ncu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "_FOLDERS", ())
    (found,) = ncu.profile([ncu.ProfileRequest(cell_of(this_cpu()), kernel_file())], full=False)
    assert found.counters is None and "ncu (Nsight Compute) is not installed" in found.missing


def test_find_ncu_reads_the_version(monkeypatch, tmp_path):
    an_ncu_that(tmp_path, "echo 'NVIDIA (R) Nsight Compute Command Line Profiler'; echo 'Version 2025.3.1.0 (build 1)'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = ncu.find_ncu()
    assert (found.version, found.release) == ("2025.3.1.0", (2025, 3))


def test_find_ncu_refuses_an_answer_without_a_version(monkeypatch, tmp_path):
    an_ncu_that(tmp_path, "echo broken")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(MachineError, match="answered 'broken'"):
        ncu.find_ncu()


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
            "not available to this user (ERR_NVGPUCTRPERM)",
        ),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "could not start its profiler"),
        ("==ERROR== InterprocessLockFailed", "could not start its profiler"),
        ("==PROF== Connected\n==WARNING== No kernels were profiled.", "No kernels were profiled"),
        ("", "it printed nothing"),
    ],
)
def test_explain_gives_the_reason_why_there_are_no_counters(output, expected):
    assert expected in explain(Done(1, output))


def test_a_command_that_does_not_end_is_ended_with_its_children(tmp_path):
    done = run_command(["/bin/sh", "-c", "echo begun; sleep 30 & sleep 30"], timeout_s=1, folder=tmp_path)
    assert done.timed_out_s == 1 and "begun" in done.output
    assert explain(done) == "ncu did not end within 1 s"


def test_the_command_is_recorded_without_paths_of_this_machine(tmp_path):
    command = ncu._command(
        ncu.Ncu("/usr/local/cuda/bin/ncu", "2025.3.1.0"),
        "9.0",
        full=False,
        report=tmp_path / "report.ncu-rep",
        job=tmp_path / "job.json",
        status=tmp_path / "status.jsonl",
    )
    words = ncu._portable(command, tmp_path)
    assert words.startswith("ncu --target-processes") and words.endswith(
        "python -P -m ledger.measure.ncu_target job.json status.jsonl"
    )
    assert "/" not in words.replace("ledger/", "")


def test_the_time_of_a_command_begins_again_while_its_file_grows(tmp_path, monkeypatch):
    monkeypatch.setattr(ncu_process, "_LOOK_S", 0.1)
    told = tmp_path / "told"
    script = f"for one in 1 2 3 4; do sleep 0.6; echo $one >> {told}; done; echo done; sleep 30"
    done = run_command(["/bin/sh", "-c", script], timeout_s=1, folder=tmp_path, grows=told)
    assert done.timed_out_s == 1 and done.output == "done\n" and told.read_text().count("\n") == 4


# Cells that are lost with another one

FAKE = """#!{python}
import json, sys
from pathlib import Path

CRASHES, RAISES, DEAD, KEEPS, RUNS = {given!r}
arguments = sys.argv[1:]
if arguments == ["--version"]:
    print("Version 2025.3.1.0 (build 1)")
elif "--import" in arguments:
    print(Path(arguments[arguments.index("--import") + 1]).read_text())
else:
    cells = [one["cell"]["cell"] for one in json.loads(Path(arguments[-2]).read_text())["cells"]]
    with open(RUNS, "a") as stream:
        stream.write(json.dumps(cells) + "\\n")
    header, units, row = {rows!r}
    marker, kernels, status = row.replace({name!r}, "ledger_marker"), [], Path(arguments[-1]).open("w")
    for number, cell in enumerate(cells):
        print(json.dumps({{"cell": number}}), file=status, flush=True)
        kernels += [marker] * (len(cells) > 1)
        if cell in CRASHES:
            break
        error = "RuntimeError: fault" if cell in (*RAISES, *DEAD) else None
        print(json.dumps({{"cell": number, "error": error}}), file=status, flush=True)
        kernels += [row] * (error is None)
        if cell in DEAD:
            break
    if KEEPS or not set(cells) & set(CRASHES + DEAD):
        Path(arguments[arguments.index("-o") + 1]).write_text("\\n".join([header, units, *kernels]) + "\\n")
    sys.exit(1 if set(cells) & set(CRASHES + DEAD) else 0)
"""
NAMES = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("crashes", "raises", "dead", "keeps", "runs"),
    [
        ([], ["b"], [], True, [NAMES]),
        (["b"], [], [], True, [NAMES, ["c", "d"]]),
        (["b"], [], [], False, [NAMES, ["a", "c", "d"]]),
        ([], ["a"], ["d"], False, [NAMES, ["b", "c"]]),
        (["a", "d"], [], ["b"], False, [NAMES, ["b", "c", "d"], ["c", "d"], ["c"]]),
        (NAMES, [], [], False, [NAMES, ["b", "c", "d"], ["c", "d"], ["d"]]),
    ],
    ids=["raises", "crash with report", "crash without report", "fault at the end", "three faults", "all"],
)
def test_no_cell_loses_its_counters_by_another_one(crashes, raises, dead, keeps, runs, tmp_path, monkeypatch):
    name = parse(RAW)[0].name
    header, units, row = RAW.strip().splitlines()
    told = tmp_path / "runs"
    text = FAKE.format(
        python=sys.executable, given=(crashes, raises, dead, keeps, str(told)), rows=(header, units, row), name=name
    )
    (tmp_path / "ncu").write_text(text)
    (tmp_path / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(ncu, "cuda_facts", lambda: SimpleNamespace(target="sm_90", uuid=None))
    monkeypatch.setattr(ncu, "current_gpu", lambda: 0)
    file = kernel_file()
    file = replace(file, kernel=replace(file.kernel, launched="."))
    requests = [ncu.ProfileRequest(cell_of(this_cpu()).model_copy(update={"cell": one}), file) for one in NAMES]
    found = ncu.profile(requests, full=False)
    assert [json.loads(line) for line in told.read_text().splitlines()] == runs
    for cell, one in zip(NAMES, found, strict=True):
        assert (one.counters is None) == (cell in (*crashes, *raises, *dead)), (cell, one.missing)
        if one.counters is None:
            said = "RuntimeError: fault" if cell in (*raises, *dead) else "ncu ended with 1: it printed nothing"
            assert one.missing == f"no counters: {said}"
        else:
            assert [kernel.name for kernel in one.counters.kernels] == [name]


def test_nothing_is_profiled_again_where_the_profiler_counts_nothing(tmp_path, monkeypatch):
    told = tmp_path / "runs"
    an_ncu_that(tmp_path, f"echo Version 2025.3.1.0; case $1 in --version) ;; *) echo run >> {told}; exit 1;; esac")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(ncu, "cuda_facts", lambda: SimpleNamespace(target="sm_90", uuid=None))
    monkeypatch.setattr(ncu, "current_gpu", lambda: 0)
    found = ncu.profile([ncu.ProfileRequest(cell_of(this_cpu()), kernel_file())] * 3, full=False)
    assert told.read_text() == "run\n" and all("ncu ended with 1" in one.missing for one in found)
