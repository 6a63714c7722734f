"""Imports folders of problems into a repository: what is written, what is refused, and that nothing of them runs."""

import json
import os
from pathlib import Path

import pytest
import yaml
from problem_texts import (
    MODEL,
    REFERENCE,
    definition,
    solution,
    workload,
    write_safetensors,
    write_set,
    writing_solution,
)

from ledger.analysis.campaign import parse_campaign
from ledger.errors import InputError
from ledger.workflow.import_problems import ImportOptions, import_problems


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    (made / ".git").mkdir(parents=True)
    return made


@pytest.mark.parametrize("layout", ["flashinfer-trace", "one folder"])
def test_set_of_either_layout_becomes_modules_and_a_campaign(tmp_path: Path, root: Path, layout: str):
    source = write_set(tmp_path / "set", [definition()], [solution()], [workload(), workload(4, "w1")], layout=layout)
    options = ImportOptions(hardware="h200", regime="hbm-bound", pct=60.0)
    done = import_problems(source, root, options)
    assert (done.problems, len(done.cells), done.skipped) == (1, 2, [])
    campaign, requests = parse_campaign(yaml.safe_load((root / done.campaigns[0]).read_text()), what="campaign")
    assert (campaign.campaign, campaign.hardware) == ("import_set", "h200")
    assert [one.shape for one in requests] == [{"rows": 8, "hidden": 64}, {"rows": 4, "hidden": 64}]
    assert {one.kernel for one in requests} == {"problems.norm_h64.fused.main:run"}
    assert {one.reference for one in requests} == {"problems.norm_h64.reference:run"}
    assert (root / "problems/norm_h64/reference.py").read_text() == REFERENCE
    assert json.loads((root / "problems/norm_h64/definition.json").read_text()) == definition()


def test_forecast_is_left_to_a_person_unless_it_is_given(tmp_path: Path, root: Path):
    source = write_set(tmp_path / "set", [definition()], [], [workload()])
    done = import_problems(source, root, ImportOptions())
    document = yaml.safe_load((root / done.campaigns[0]).read_text())
    with pytest.raises(InputError, match=r"cell 1: "):
        parse_campaign(document, what="campaign")


def test_cpu_takes_the_reference_where_no_solution_runs_there(tmp_path: Path, root: Path):
    one = solution()
    one["spec"]["language"] = "triton"
    (root / "hardware").mkdir()
    source = write_set(tmp_path / "set", [definition()], [one], [workload()])
    gpu = import_problems(source, root, ImportOptions(hardware="h200"))
    assert [cell.solution for cell in gpu.cells] == ["fused"]
    from desk import this_cpu

    from ledger.record_files import hardware_yaml

    (root / "hardware" / "cpu.yaml").write_bytes(hardware_yaml(this_cpu()))
    cpu = import_problems(source, root, ImportOptions(into="on_cpu", hardware="cpu"))
    assert [(cell.solution, cell.kernel) for cell in cpu.cells] == [(None, "on_cpu.norm_h64.reference:run")]
    assert "cannot be built or run there" in cpu.skipped[0].reason


def test_nothing_of_a_problem_runs(tmp_path: Path, root: Path):
    trap = f"\nimport pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    one = solution(sources=[{"path": "main.py", "content": solution()["sources"][0]["content"] + trap}])
    source = write_set(tmp_path / "set", [definition(reference=REFERENCE + trap)], [one], [workload()])
    (source / "model.py").write_text(MODEL + trap)
    done = import_problems(source, root, ImportOptions())
    assert len(done.cells) == 2
    assert not (tmp_path / "ran").exists()


def test_kernelbench_file_is_imported_alone(tmp_path: Path, root: Path):
    path = tmp_path / "1_Scaled.py"
    path.write_text(MODEL)
    (cell,) = import_problems(path, root, ImportOptions(into="kb")).cells
    folder = cell.kernel.split(".")[1]
    assert (root / "kb" / folder / "problem.py").read_text() == MODEL


def test_same_import_again_changes_nothing_and_another_is_refused(tmp_path: Path, root: Path):
    source = write_set(tmp_path / "set", [definition()], [solution()], [workload()])
    import_problems(source, root, ImportOptions())
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    import_problems(source, root, ImportOptions())
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    campaign = root / "problems/campaign.yaml"
    campaign.write_text(campaign.read_text() + "# mine\n")
    with pytest.raises(InputError, match=r"campaign\.yaml: is there with other content"):
        import_problems(source, root, ImportOptions())
    assert campaign.read_text().endswith("# mine\n")
    write_set(tmp_path / "set", [definition(description="other")], [], [])
    with pytest.raises(InputError, match="there with other content"):
        import_problems(source, root, ImportOptions())


def test_stored_integers_are_copied_and_held(tmp_path: Path, root: Path):
    axes = {"n": {"type": "var"}, "rows": {"type": "const", "value": 4}}
    inputs = {"table": {"shape": ["rows"], "dtype": "float32"}, "ids": {"shape": ["n"], "dtype": "int32"}}
    one = definition(axes=axes, inputs=inputs, outputs={}, reference="def run(table, ids):\n    return table[ids]\n")
    given = {"ids": {"type": "safetensors", "path": "./blob/a.safetensors", "tensor_key": "ids"}}
    source = write_set(tmp_path / "set", [one], [], [workload(axes={"n": 2}, inputs=given)])
    write_safetensors(source / "blob/a.safetensors", "ids", "I32", [2], bytes([3, 0, 0, 0, 1, 0, 0, 0]))
    (cell,) = import_problems(source, root, ImportOptions()).cells
    assert cell.args == "table=fp32[rows]"
    assert (root / "problems/blob/a.safetensors").read_bytes() == (source / "blob/a.safetensors").read_bytes()


def hostile(kind: str, folder: Path) -> None:
    """Put one file into a folder that no reader should trust."""
    folder.mkdir()
    target = folder / "definition.json"
    if kind == "pipe":
        os.mkfifo(target)
    elif kind == "large":
        with target.open("wb") as stream:
            stream.truncate(2**31)
    elif kind == "deep":
        target.write_text("[" * 100_000)
    elif kind == "binary":
        target.write_bytes(bytes(range(256)))
    elif kind == "lines":
        (folder / "workload.jsonl").write_text('{"axes": {}, "inputs": {}}\n' * 3)
    elif kind == "bomb":
        target.write_text(json.dumps(definition(reference="def run(x):\n    return " + "(" * 5000)))
    elif kind == "twice":
        write_set(folder, [definition()], [], [])
        (folder / "again.json").write_text(json.dumps(definition(description="other")))


@pytest.mark.parametrize("kind", ["pipe", "large", "deep", "binary", "lines", "bomb", "twice", "empty"])
def test_hostile_folder_is_refused_or_gives_no_subject(tmp_path: Path, root: Path, kind: str):
    hostile(kind, tmp_path / "set")
    if kind == "bomb":
        assert not import_problems(tmp_path / "set", root, ImportOptions()).cells
        return
    with pytest.raises(InputError, match="expected"):
        import_problems(tmp_path / "set", root, ImportOptions())
    assert [path.name for path in root.iterdir()] == [".git"]


def test_files_that_cannot_be_read_are_left_out_when_asked(tmp_path: Path, root: Path):
    source = write_set(tmp_path / "set", [definition()], [solution()], [workload()])
    (source / "broken.json").write_text("{")
    with pytest.raises(InputError, match=r"broken\.json: not JSON"):
        import_problems(source, root, ImportOptions())
    done = import_problems(source, root, ImportOptions(skip_invalid=True))
    assert len(done.cells) == 1
    assert done.skipped[0].what == "broken.json"


def test_links_lead_nowhere(tmp_path: Path, root: Path):
    source = write_set(tmp_path / "set", [definition()], [], [workload()])
    other = write_set(tmp_path / "other", [definition(name="secret")], [], [])
    (source / "link").symlink_to(other)
    (source / "loop").symlink_to(source)
    assert import_problems(source, root, ImportOptions()).problems == 1
    (root / "elsewhere").symlink_to(tmp_path / "other")
    with pytest.raises(InputError, match="leads out of the repository"):
        import_problems(source, root, ImportOptions(into="elsewhere"))


def test_solution_whose_imports_no_seal_covers_is_listed(tmp_path: Path, root: Path):
    one = solution(
        sources=[{"path": "main.py", "content": "import not_installed_here\ndef run(x, w, eps):\n    pass\n"}]
    )
    source = write_set(tmp_path / "set", [definition()], [one, writing_solution()], [workload()])
    done = import_problems(source, root, ImportOptions())
    assert [cell.solution for cell in done.cells] == ["writes"]
    assert "not installed" in done.skipped[0].reason


@pytest.mark.parametrize("into", ["", "../x", "A", "a/b", "x" * 40, "a.b"])
def test_folder_that_is_no_package_is_refused(tmp_path: Path, root: Path, into: str):
    with pytest.raises(InputError, match="--into"):
        import_problems(tmp_path, root, ImportOptions(into=into))


def test_a_line_that_is_no_workload_among_others_stops_an_import(tmp_path: Path, root: Path):
    broken = {"uuid": "w1", "axes": {"rows": 4}}
    source = write_set(tmp_path / "set", [definition()], [], [workload(), broken, workload(2, "w2")])
    with pytest.raises(InputError, match="line 2: is no workload and no trace"):
        import_problems(source, root, ImportOptions())
    done = import_problems(source, root, ImportOptions(skip_invalid=True))
    assert next(one.reason for one in done.skipped).startswith("line 2")
