"""Writes definitions, workloads, solutions and traces of the ledger's own cells in the form of flashinfer-trace. Pure.

Source: as documents. What is not known is left out, never guessed: outputs of a callable, whose sizes only its code
tells, and the latency of the reference, which is not timed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledger.callables.subject import SELF, is_callable
from ledger.errors import InputError
from ledger.problems.documents import Definition
from ledger.problems.entry_points import check_run
from ledger.problems.exported_tensors import Tensors
from ledger.records import Case, CaseV2, Distribution, Forecast, KernelSource, Measurement

ENTRY = "ledger_entry.py"


@dataclass(frozen=True)
class SealedSource:
    """Hold the sealed sources of a cell. files: text by path. manifest: None for a seal of version 1, of one file."""

    manifest: KernelSource | None
    files: Mapping[str, str]

    @property
    def distributions(self) -> tuple[Distribution, ...]:
        """Return the distributions that the sources import."""
        return () if self.manifest is None else self.manifest.distributions

    def path_of(self, module: str) -> str | None:
        """Return the path of a module."""
        listed = () if self.manifest is None else self.manifest.files
        return next((one.path for one in listed if one.module == module), None)


def definition_of(case: Case, tensors: Tensors, source: SealedSource | None) -> dict[str, Any]:
    """Return the definition of a case."""
    described = {name: f"{formula} of the shape" for name, formula in tensors.formulas.items()}
    axes = {
        name: {"type": "var", **({"description": described[name]} if name in described else {})}
        for name in tensors.axes
    }
    kind = "callable" if is_callable(case.kernel) else "kernel"
    compared = case.config.get("reference", "its float64 reference")
    said = f"compared with {compared} in float64" if compared != SELF else "compared with itself in float64 only"
    run = case.config.get("pass", "forward")
    return {
        "name": definition_name(case),
        "description": f"{kind.capitalize()} {case.kernel} of a ledger, {run}; {said}.",
        "op_type": kind,
        "tags": [f"ledger:{kind}"],
        "axes": axes,
        "inputs": dict(tensors.inputs),
        "outputs": dict(tensors.outputs),
        "reference": _reference(case, tensors, source),
    }


def definition_name(case: Case) -> str:
    """Return the name of a case's definition: one for each kernel and dtype, or callable and list of arguments."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", case.kernel)
    if not isinstance(case, CaseV2) or case.arguments is None:
        return f"{plain}_{case.dtype}"
    listed = [case.kernel, *(repr(one) for one in case.arguments), repr(sorted(case.config.items()))]
    return f"{plain}_{hashlib.sha256(repr(listed).encode()).hexdigest()[:8]}"


def _reference(case: Case, tensors: Tensors, source: SealedSource | None) -> str:
    names = ", ".join(tensors.inputs)
    if not is_callable(case.kernel):
        given = ", ".join(f'"{name}": {name}' for name in tensors.inputs)
        return (
            "import pathlib\n\nfrom ledger.kernel_files import load_kernel\n\n\n"
            f"def run({names}):\n"
            f'    """Return the float64 reference of kernel {case.kernel}; needs the package roofline-ledger."""\n'
            f'    kernel = load_kernel("{case.kernel}", pathlib.Path.cwd()).kernel\n'
            f"    return kernel.reference({{{given}}})\n"
        )
    name = case.kernel if case.config.get("reference", SELF) == SELF else str(case.config["reference"])
    module, _, attribute = name.partition(":")
    text = "" if source is None else _module_text(source, module)
    if _is_function(text, "run") and attribute == "run":
        return text
    called = _called(text, attribute)
    return f"{text}\n\ndef run({names}):\n    return {called}({names})\n"


def _module_text(source: SealedSource, module: str) -> str:
    path = source.path_of(module)
    return "" if path is None else source.files[path]


def _is_function(text: str, name: str) -> bool:
    try:
        return name.isidentifier() and check_run(text, name) is not None
    except InputError:
        return False


def _called(text: str, attribute: str) -> str:
    """Return what is called: an instance where the attribute is a class of its module."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return attribute
    return (
        f"{attribute}()"
        if any(isinstance(one, ast.ClassDef) and one.name == attribute for one in tree.body)
        else attribute
    )


def solution_of(
    forecast: Forecast, tensors: Tensors, source: SealedSource, *, author: str, device: str
) -> dict[str, Any]:
    """Return the solution of a cell: every sealed source, and an entry that calls the subject on the inputs."""
    case = forecast.case
    # The format allows no empty file.
    files = [{"path": path, "content": text or "\n"} for path, text in sorted(source.files.items())]
    entry = f"{ENTRY}::run"
    if (direct := _direct_entry(case, source)) is not None:
        entry = direct
    else:
        files.append({"path": ENTRY, "content": _entry(case, tensors)})
    return {
        "name": solution_name(forecast),
        "definition": definition_name(case),
        "author": author or "unknown",
        "description": f"Sealed sources {forecast.kernel_sha256} of {case.kernel}.",
        "spec": {
            "language": "triton" if case.implementation == "triton" else "python",
            "target_hardware": [device],
            "entry_point": entry,
            "dependencies": [f"{one.name}=={one.version}" for one in source.distributions],
            "destination_passing_style": False,
        },
        "sources": files,
    }


def reference_solution(definition: Definition) -> dict[str, Any]:
    """Return the solution of a problem that was measured without one: its own reference."""
    return {
        "name": f"{definition.name}_reference",
        "definition": definition.name,
        "author": "reference",
        "description": "The reference of the definition, as it is.",
        "spec": {
            "language": "python",
            "target_hardware": ["cpu", "cuda"],
            "entry_point": "main.py::run",
            "dependencies": [],
            "destination_passing_style": False,
        },
        "sources": [{"path": "main.py", "content": definition.reference}],
    }


def solution_name(forecast: Forecast) -> str:
    """Return the name of a cell's solution: other sources or another configuration are another solution."""
    case = forecast.case
    what = f"{forecast.kernel_sha256} {case.implementation} {sorted(case.config.items())}"
    return f"{definition_name(case)}_{hashlib.sha256(what.encode()).hexdigest()[:8]}"


def _direct_entry(case: Case, source: SealedSource) -> str | None:
    if not is_callable(case.kernel) or case.config.get("pass", "forward") != "forward":
        return None
    module, _, attribute = case.kernel.partition(":")
    path = source.path_of(module)
    return f"{path}::{attribute}" if path and _is_function(source.files[path], attribute) else None


def _entry(case: Case, tensors: Tensors) -> str:
    names = ", ".join(tensors.inputs)
    if is_callable(case.kernel):
        module, _, attribute = case.kernel.partition(":")
        return (
            f'"""Calls {case.kernel}; parameters of a module keep the values that its code gives them."""\n\n'
            f"import torch\n\nfrom {module} import {attribute.partition('.')[0]} as _found\n\n"
            + "".join(f"_found = _found.{part}\n" for part in attribute.split(".")[1:])
            + "_call = _found() if isinstance(_found, type) and issubclass(_found, torch.nn.Module) else _found\n\n\n"
            f"def run({names}):\n    return _call({names})\n"
        )
    shape = ", ".join(
        f'"{key}": {tensors.keys[key][0]}.shape[{tensors.keys[key][1]}]' if key in tensors.keys else f'"{key}": {size}'
        for key, size in case.shape.items()
    )
    given = ", ".join(f'"{name}": {name}' for name in tensors.inputs)
    dtype = next(iter(tensors.outputs.values()))["dtype"]
    return (
        f'"""Runs kernel {case.kernel} as it was sealed; needs the package roofline-ledger."""\n\n'
        "import pathlib\n\nimport torch\n\nfrom ledger.kernel_files import load_kernel\n\n"
        f'_KERNEL = load_kernel("{case.kernel}", pathlib.Path(__file__).parent, launch=True).kernel\n'
        f"_CONFIG = {dict(case.config)!r}\n\n\n"
        f"def run({names}):\n"
        f"    dims = _KERNEL.operation.output_dims({{{shape}}})\n"
        f"    out = torch.empty(dims, dtype=torch.{dtype}, device={next(iter(tensors.inputs))}.device)\n"
        f'    _KERNEL.implementations["{case.implementation}"]({{{given}}}, out, _CONFIG)()\n'
        "    return out\n"
    )


def workload_of(case: Case, tensors: Tensors) -> dict[str, Any]:
    """Return the workload of a case. A seal fills tensors, which the format calls random."""
    inputs: dict[str, Any] = {name: {"type": "random"} for name in tensors.inputs}
    inputs |= {name: {"type": "scalar", "value": value} for name, value in tensors.scalars.items()}
    axes = dict(tensors.axes)
    named = json.dumps([definition_name(case), axes, inputs], sort_keys=True)
    return {"uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, named)), "axes": axes, "inputs": inputs}


def evaluation_of(measurement: Measurement, *, record: str) -> dict[str, Any]:
    """Return the evaluation of a measurement. record: its id.

    Errors of callables are in units of each output's root mean square, as `extra` says. The reference is not timed:
    its latency and the speed-up are left out.
    """
    found, correct = measurement, measurement.correctness
    extra: dict[str, Any] = {
        "seal": found.seal, "cell": found.cell, "run": found.run, "record": record,
        "protocol": found.protocol.name,
    }  # fmt: skip
    evaluation: dict[str, Any] = {
        "status": _status(found),
        "environment": {"hardware": found.device.name, "libs": dict(found.device.software)},
        "timestamp": found.started_at,
        "log": _log(found),
    }
    if correct is not None and evaluation["status"] in ("PASSED", "INCORRECT_NUMERICAL"):
        extra |= {"reference": correct.reference, "atol": correct.atol, "rtol": correct.rtol}
        extra |= {"elements": correct.elements}
        relative, absolute = _number(correct.relative_error), _number(correct.max_abs_error)
        evaluation["correctness"] = {
            "max_relative_error": relative or 0.0,
            "max_absolute_error": absolute or 0.0,
            **({"has_nan": True} if relative is None or absolute is None else {}),
            "extra": {"ledger": extra},
        }
    if found.timing is not None and evaluation["status"] == "PASSED":
        evaluation["performance"] = {"latency_ms": found.timing.median_ps / 1e9}
    return evaluation


def _status(found: Measurement) -> str:
    if found.status == "measured":
        return "PASSED"
    wrong = found.correctness is not None and not found.correctness.passed
    return "INCORRECT_NUMERICAL" if wrong else "RUNTIME_ERROR"


def _log(found: Measurement) -> str:
    lines = [f"{found.tool.name} {found.tool.version}: seal {found.seal}, cell {found.cell}, run {found.run}"]
    if found.timing is not None:
        one = found.timing
        lines.append(
            f"median of {len(one.rounds_ps)} rounds of {one.calls_per_round} calls, {one.input_sets} input sets; "
            f"{one.confidence_ppm / 1e4:g}% interval {one.low_ps / 1e9:g} to {one.high_ps / 1e9:g} ms; the reference "
            "is not timed"
        )
    return "\n".join([*lines, *filter(None, [found.failure])])


def _number(text: str) -> float | None:
    value = float(text)
    return value if value == value and abs(value) != float("inf") else None
