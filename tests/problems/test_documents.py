"""Reads definitions, traces and solutions, and refuses those that are not well-formed."""

import json
from typing import Any

import pytest
from problem_texts import definition, solution, workload

from ledger.errors import InputError
from ledger.problems.documents import read_definition, read_solution, read_trace


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_definition_keeps_its_bytes_and_names_its_parts():
    data = text(definition())
    found = read_definition(data, what="d")
    assert (found.name, found.op_type, found.data) == ("norm_h64", "norm", data)
    assert found.axes["hidden"].value == 64
    assert found.axes["rows"].value is None
    assert found.inputs["x"].dims == ("rows", "hidden")
    assert found.inputs["eps"].dims is None


def test_bare_workload_becomes_a_trace_that_holds_its_bytes():
    line = text(workload()["workload"])
    found = read_trace(line + b" ", what="w", definition="norm_h64")
    assert found.is_workload
    assert line in found.data
    assert json.loads(found.data) == {"definition": "norm_h64", "workload": workload()["workload"]}


def test_empty_evaluation_is_a_workload():
    line = {**workload(), "solution": "", "evaluation": {}}
    assert read_trace(text(line), what="w", definition=None).is_workload


def test_solution_of_either_benchmark_is_read():
    one = read_solution(text(solution()), what="s")
    assert (one.languages, one.path, one.function, one.outputs_passed) == (("python",), "main.py", "run", False)
    other = solution()
    other["spec"] = {"languages": ["pytorch"], "entry_point": "main.py::run"}
    found = read_solution(text(other), what="s")
    assert (found.languages, found.outputs_passed, found.binding) == (("pytorch",), None, "torch")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "name has 0 characters"),
        ({"name": 3}, "name is of type int"),
        ({"axes": []}, "axes: is of type list"),
        ({"axes": {"rows": {"type": "other"}}}, "axes.rows: type is 'other'"),
        ({"axes": {"rows": {"type": "const", "value": -1}}}, "axes.rows: is -1"),
        ({"axes": {"rows": {"type": "const", "value": True}}}, "axes.rows: is True"),
        ({"inputs": {"x": {"shape": ["cols"], "dtype": "float32"}}}, "axis 'cols' is not in axes"),
        ({"inputs": {"x": {"shape": "rows", "dtype": "float32"}}}, "inputs.x: shape: is no list"),
        ({"reference": None}, "reference is of type NoneType"),
        ({"inputs": {f"x{n}": {"shape": None, "dtype": "int32"} for n in range(300)}}, "inputs has 300 entries"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_definition_that_is_not_well_formed_is_refused(change: dict[str, Any], said: str):
    with pytest.raises(InputError, match=r"^d: ") as caught:
        read_definition(text(definition(**change)), what="d")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [b"[]", b"{", b"\xff\xfe", b'{"a":' * 60, b'{"name": NaN}', b'{"name": 1, "name": 2}', b"", b"null"],
    ids=["list", "cut", "utf-16", "deep", "nan", "repeated", "empty", "null"],
)
def test_text_that_is_no_document_is_refused(data: bytes):
    for read in (read_definition, read_solution):
        with pytest.raises(InputError, match=r"^d: "):
            read(data, what="d")
    with pytest.raises(InputError, match=r"^d"):
        read_trace(data, what="d", definition="x")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../main.py",
        "a/../../b.py",
        "a//b.py",
        "a\\b.py",
        "./main.py",
        "",
        "a\0b",
        "x" * 250,
        "solution.json",
        ".",
    ],
    ids=repr,
)
def test_source_outside_its_folder_is_refused(path: str):
    one = solution(sources=[{"path": path, "content": "x"}, {"path": "main.py", "content": "x"}])
    with pytest.raises(InputError, match=r"sources\.0"):
        read_solution(text(one), what="s")


@pytest.mark.parametrize("entry", ["main.py", "main.py::", "::run", "main.py::run::more", "other.py::run"], ids=repr)
def test_entry_point_that_names_nothing_is_refused(entry: str):
    one = solution()
    one["spec"]["entry_point"] = entry
    with pytest.raises(InputError, match="entry_point"):
        read_solution(text(one), what="s")


def test_source_that_is_a_file_and_a_folder_is_refused():
    one = solution(sources=[{"path": path, "content": "x"} for path in ("main.py", "a/b", "a/b/c.py")])
    with pytest.raises(InputError, match="a file and a folder"):
        read_solution(text(one), what="s")


@pytest.mark.parametrize(
    "change", [{"name": "\ud800"}, {"reference": "x = '\udfff'"}, {"axes": {"\ud800": {"type": "var"}}}]
)
def test_half_of_a_surrogate_pair_is_refused(change: dict[str, Any]):
    with pytest.raises(InputError, match=r"^d: "):
        read_definition(text(definition(**change)), what="d")


def test_workload_with_a_bad_input_is_refused():
    line = workload()
    line["workload"]["inputs"]["eps"] = {"type": "scalar", "value": "1"}
    with pytest.raises(InputError, match="value is no number"):
        read_trace(text(line), what="w", definition=None)
