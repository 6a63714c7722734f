"""Whatever stands in a document's fields, reading it gives subjects or one clear error."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from problem_texts import MODEL, definition, solution, workload

from ledger.errors import InputError
from ledger.problems.cells import Problem
from ledger.problems.documents import read_definition, read_solution, read_trace
from ledger.problems.kernelbench import is_problem, model_subject, parse_module
from ledger.problems.subjects import subjects_of

SCALAR = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=12) | st.sampled_from(
    ["x", "rows", "hidden", "const", "var", "expr", "random", "custom", "scalar", "safetensors", "float16", "int32",
     "main.py", "main.py::run", "a.cu::run", "../x", "triton", "cuda", "torch", "rows*2", "type", "value", "shape",
     "dtype", "axes", "inputs", "path", "content", "tensor_key", "expression", "def run(x): pass", "1", "0"]
)  # fmt: skip
JSON = st.recursive(
    SCALAR | TEXT, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=8
)


def changed(value: Any, path: list[int], new: Any) -> Any:
    """Return a copy of a value with one member, found by numbers, replaced."""
    if not path or not isinstance(value, dict | list) or not value:
        return new
    if isinstance(value, dict):
        key = list(value)[path[0] % len(value)]
        return {**value, key: changed(value[key], path[1:], new)}
    place = path[0] % len(value)
    return [*value[:place], changed(value[place], path[1:], new), *value[place + 1 :]]


CODE = st.sampled_from(["torch.rand(", ")", "*", "[", "2**9", "-"])
PATH = st.lists(st.integers(0, 9), min_size=1, max_size=4)


@settings(max_examples=60)
@given(st.sampled_from(["definition", "workload", "solution"]), PATH, JSON)
def test_any_field_gives_subjects_or_an_input_error(which: str, path: list[int], new: Any):
    made = {"definition": definition(), "workload": workload(), "solution": solution()}
    made[which] = changed(made[which], path, new)
    data = {name: json.dumps(value).encode() for name, value in made.items()}
    try:
        problem = Problem(
            read_definition(data["definition"], what="d"),
            [read_trace(data["workload"], what="w", definition="norm_h64")],
            [read_solution(data["solution"], what="s")],
            "problems.p",
        )
        found = subjects_of(problem, lambda _path, _key: (_ for _ in ()).throw(InputError("none")))
    except InputError as error:
        assert str(error)[:2] in ("d:", "w:", "s:")
    else:
        assert found.cells or found.skipped


@settings(max_examples=60)
@given(
    st.integers(0, len(MODEL)), st.integers(0, 30), TEXT | st.sampled_from(["torch.rand(", ")", "*", "[", "2**9", "-"])
)
def test_any_text_gives_a_model_or_an_input_error(start: int, length: int, new: str):
    text = (MODEL[:start] + new + MODEL[start + length :]).encode("utf-8", "replace")
    try:
        tree = parse_module(text, what="m")
    except InputError:
        return
    if is_problem(tree):
        found = model_subject(text, name="m", package="problems.m")
        assert len(found.cells) + len(found.skipped) == 1
