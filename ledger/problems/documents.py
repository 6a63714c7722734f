"""Reads the documents that flashinfer-bench and SOL-ExecBench share: definition, workload or trace, solution. Pure.

Source: flashinfer-bench, docs/flashinfer-trace/*.mdx and flashinfer_bench/data; SOL-ExecBench, docs/*.md. Each document
keeps the bytes it was read from, so that fields unknown here are never lost. Code in them is text: nothing runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ledger.canonical import parse_json
from ledger.errors import InputError

MAX_DOCUMENT_BYTES = 8 * 1024 * 1024
MAX_SOURCE_TEXT = 1024 * 1024
MAX_NAME = 300
MAX_PATH = 200
MAX_ENTRIES = 256
MAX_SOURCES = 200


@dataclass(frozen=True)
class Axis:
    """Hold one axis. value: of a constant one; expression: of one computed from others; neither: it varies."""

    value: int | None = None
    expression: str | None = None


@dataclass(frozen=True)
class Tensor:
    """Hold an input or output. dims: names of axes or digits; None for a scalar. dtype: as the document names it."""

    dims: tuple[str, ...] | None
    dtype: str


@dataclass(frozen=True)
class Definition:
    """Hold a problem. inputs_from: the function of the reference that makes its inputs, where there is one."""

    name: str
    op_type: str
    axes: Mapping[str, Axis]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    reference: str
    inputs_from: str | None
    data: bytes


@dataclass(frozen=True)
class Given:
    """Hold how a workload gives an input. kind: random, scalar, safetensors, custom, or one that is not known here."""

    kind: str
    value: int | float | bool | None = None
    path: str = ""
    key: str = ""


@dataclass(frozen=True)
class Trace:
    """Hold one line of traces: a workload, and its evaluation where a solution was run. data: the line."""

    definition: str
    axes: Mapping[str, int]
    inputs: Mapping[str, Given]
    uuid: str
    solution: str | None
    data: bytes

    @property
    def is_workload(self) -> bool:
        """Tell whether it is a workload alone."""
        return self.solution is None


@dataclass(frozen=True)
class Solution:
    """Hold a solution. outputs_passed: whether it is given the outputs to write; None where the document is silent.

    binding: how C++ is bound to Python, where the document says so. flags: compiler options by their names.
    """

    name: str
    definition: str
    languages: tuple[str, ...]
    path: str
    function: str
    outputs_passed: bool | None
    binding: str | None
    flags: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, str]
    data: bytes


def read_definition(data: bytes, *, what: str) -> Definition:
    """Return a definition. Raises: InputError, naming the field."""
    value = _object(parse_json(data, what=what), what)
    axes = {name: _axis(item, f"{what}: axes.{name}") for name, item in _members(value, "axes", what)}
    inputs = {name: _tensor(item, f"{what}: inputs.{name}") for name, item in _members(value, "inputs", what)}
    outputs = {name: _tensor(item, f"{what}: outputs.{name}") for name, item in _members(value, "outputs", what)}
    for name, tensor in (*inputs.items(), *outputs.items()):
        for dim in tensor.dims or ():
            if dim not in axes and not (dim.isascii() and dim.isdigit() and len(dim) < 16):
                known = ", ".join(axes)[:200]
                raise InputError(f"{what}: {name}: axis {dim!r} is not in axes; expected one of {known}")
    made = value.get("custom_inputs_entrypoint")
    return Definition(
        name=_text(value, "name", what),
        op_type=_text(value, "op_type" if "op_type" in value else "type", what, default="unknown"),
        axes=axes,
        inputs=inputs,
        outputs=outputs,
        reference=_text(value, "reference", what, limit=MAX_SOURCE_TEXT),
        inputs_from=None if made is None else _text(value, "custom_inputs_entrypoint", what),
        data=data,
    )


def read_trace(data: bytes, *, what: str, definition: str | None) -> Trace:
    """Return a line of traces. definition: whose workload a line is that names none. Raises: InputError."""
    value = _object(parse_json(data, what=what), what)
    if "workload" not in value:
        if definition is None:
            raise InputError(f"{what}: has no workload and no definition.json beside it; expected a workload or trace")
        data = b'{"definition": ' + _json(definition) + b', "workload": ' + data.strip() + b"}"
        value = {"definition": definition, "workload": value}
    workload = _object(value["workload"], f"{what}: workload")
    axes = {name: _size(size, f"{what}: axes.{name}") for name, size in _members(workload, "axes", what)}
    solution = value.get("solution") or None
    evaluated = bool(value.get("evaluation"))
    if evaluated and not isinstance(solution, str):
        raise InputError(f"{what}: has an evaluation and names no solution; expected its name")
    return Trace(
        definition=_text(value, "definition", what),
        axes=axes,
        inputs={name: _given(item, f"{what}: inputs.{name}") for name, item in _members(workload, "inputs", what)},
        uuid=_text(workload, "uuid", what, default=""),
        solution=solution if evaluated else None,
        data=data.strip(),
    )


def read_solution(data: bytes, *, what: str) -> Solution:
    """Return a solution. Raises: InputError, naming the field."""
    value = _object(parse_json(data, what=what), what)
    spec = _object(value.get("spec"), f"{what}: spec")
    path, separator, function = _text(spec, "entry_point", f"{what}: spec").partition("::")
    if not (separator and path and function) or "::" in function:
        raise InputError(f"{what}: spec.entry_point is {spec['entry_point']!r}; expected FILE::FUNCTION")
    sources = _sources(value.get("sources"), what)
    if path not in sources:
        raise InputError(f"{what}: spec.entry_point names {path!r}, which is no source; expected one of the sources")
    passed, binding = spec.get("destination_passing_style"), spec.get("binding")
    if not (passed is None or isinstance(passed, bool)) or not (binding is None or isinstance(binding, str)):
        raise InputError(f"{what}: spec.destination_passing_style or spec.binding is of another type; expected a bool")
    languages = _texts(spec.get("languages", [spec.get("language", "python")]), f"{what}: spec.languages")
    # SOL-ExecBench names several languages and binds C++ by torch; flashinfer-bench names one and binds by tvm-ffi.
    default = "torch" if "languages" in spec else "tvm-ffi"
    options = _object(spec.get("compile_options") or {}, f"{what}: spec.compile_options")
    return Solution(
        name=_text(value, "name", what),
        definition=_text(value, "definition", what),
        languages=tuple(one.lower() for one in languages),
        path=path,
        function=function,
        outputs_passed=passed,
        binding=binding or default,
        flags={name: _texts(item, f"{what}: spec.compile_options.{name}") for name, item in options.items()},
        sources=sources,
        data=data,
    )


def kind_of_document(value: Any) -> str | None:
    """Return what a JSON value is: definition, solution or None."""
    if not isinstance(value, dict):
        return None
    if "reference" in value and "axes" in value:
        return "definition"
    return "solution" if "sources" in value and "spec" in value else None


def _sources(value: Any, what: str) -> dict[str, str]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_SOURCES:
        raise InputError(f"{what}: sources is no list of 1 to {MAX_SOURCES} files; expected path and content of each")
    found: dict[str, str] = {}
    for number, item in enumerate(value):
        where = f"{what}: sources.{number}"
        one = _object(item, where)
        path, content = _text(one, "path", where), _text(one, "content", where, limit=MAX_SOURCE_TEXT)
        parts = PurePosixPath(path).parts
        strange = not parts or "\\" in path or not path.isprintable() or PurePosixPath(path).as_posix() != path
        if strange or path.startswith("/") or ".." in parts or len(path) > MAX_PATH or path == "solution.json":
            raise InputError(f"{where}: path is {path[:80]!r}; expected one below the solution's own folder")
        if path in found:
            raise InputError(f"{where}: duplicate path {path[:80]!r}; expected each once")
        found[path] = content
    folders = {parent.as_posix() for path in found for parent in PurePosixPath(path).parents}
    if both := sorted(folders & set(found)):
        raise InputError(f"{what}: sources: {both[0]!r} is a file and a folder; expected one of both")
    return found


def _axis(value: Any, what: str) -> Axis:
    item = _object(value, what)
    if item.get("type") == "const":
        return Axis(value=_size(item.get("value"), what))
    if item.get("type") == "expr":
        return Axis(expression=_text(item, "expression", what))
    if item.get("type") != "var":
        raise InputError(f"{what}: type is {str(item.get('type'))[:40]!r}; expected const, var or expr")
    return Axis()


def _tensor(value: Any, what: str) -> Tensor:
    item = _object(value, what)
    dims = item.get("shape")
    return Tensor(None if dims is None else _texts(dims, f"{what}: shape", most=16), _text(item, "dtype", what))


def _given(value: Any, what: str) -> Given:
    item = _object(value, what)
    kind = _text(item, "type", what)
    if kind == "scalar" and not isinstance(item.get("value"), bool | int | float):
        raise InputError(f"{what}: value is no number; expected one for a scalar")
    stored = kind == "safetensors"
    return Given(
        kind,
        item.get("value") if kind == "scalar" else None,
        _text(item, "path", what, limit=1000) if stored else "",
        _text(item, "tensor_key", what) if stored else "",
    )


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{what}: is of type {type(value).__name__}; expected an object")
    return value


def _members(value: dict[str, Any], key: str, what: str) -> list[tuple[str, Any]]:
    items = list(_object(value.get(key), f"{what}: {key}").items())
    if len(items) > MAX_ENTRIES:
        raise InputError(f"{what}: {key} has {len(items)} entries; expected at most {MAX_ENTRIES}")
    if bad := [name for name, _ in items if not name or len(name) > MAX_NAME or not _is_unicode(name)]:
        raise InputError(f"{what}: {key} has the name {bad[0][:40]!r}; expected 1 to {MAX_NAME} characters")
    return items


def _text(value: dict[str, Any], key: str, what: str, *, default: str | None = None, limit: int = MAX_NAME) -> str:
    found = value.get(key, default)
    right = isinstance(found, str) and (found or default is not None) and len(found) <= limit
    if not isinstance(found, str) or not right or not _is_unicode(found):
        got = f"is of type {type(found).__name__}" if not isinstance(found, str) else f"has {len(found)} characters"
        got += " and half of a surrogate pair" if right else ""
        raise InputError(f"{what}: {key} {got}; expected text of 1 to {limit} characters")
    return found


def _texts(value: Any, what: str, *, most: int = MAX_ENTRIES) -> tuple[str, ...]:
    right = isinstance(value, list) and len(value) <= most
    if not right or not all(isinstance(one, str) and 0 < len(one) <= MAX_NAME and _is_unicode(one) for one in value):
        raise InputError(f"{what}: is no list of up to {most} texts; expected one")
    return tuple(value)


def _size(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise InputError(f"{what}: is {str(value)[:40]}; expected a size")
    return value


def _is_unicode(text: str) -> bool:
    """Tell whether text can be written as UTF-8: JSON may hold half of a surrogate pair."""
    return not any("\ud800" <= one <= "\udfff" for one in text) if not text.isascii() else True


def _json(text: str) -> bytes:
    import json

    return json.dumps(text).encode()
