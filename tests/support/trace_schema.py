"""States the fields of flashinfer-trace as its documentation lists them, to hold what is exported against.

Source: flashinfer-ai/flashinfer-bench, docs/flashinfer-trace/definition.mdx, workload.mdx, solution.mdx and trace.mdx,
and flashinfer_bench/data at 40e6ca7. Where that package is installed, its own models are used as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

Filled = Annotated[str, Field(min_length=1)]
Size = Annotated[int, Field(ge=0)]
Latency = Annotated[float, Field(ge=0)]
Dtype = Literal[
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1", "int64", "int32", "int16", "int8",
    "bool",
]  # fmt: skip


class Const(BaseModel):
    type: Literal["const"]
    value: Size


class Var(BaseModel):
    type: Literal["var"]


class Tensor(BaseModel):
    shape: list[Filled] | None
    dtype: Dtype


class Definition(BaseModel):
    name: Filled
    op_type: Filled
    axes: dict[Filled, Const | Var]
    inputs: dict[Filled, Tensor]
    outputs: dict[Filled, Tensor]
    reference: Filled
    tags: list[Filled] = []
    description: str | None = None

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        functions = [one.name for one in ast.parse(self.reference).body if isinstance(one, ast.FunctionDef)]
        assert "run" in functions
        assert not set(self.inputs) & set(self.outputs)
        for one in (*self.inputs.values(), *self.outputs.values()):
            assert set(one.shape or ()) <= set(self.axes)
        return self


class Random(BaseModel):
    type: Literal["random"]


class Scalar(BaseModel):
    type: Literal["scalar"]
    value: int | float | bool


class Stored(BaseModel):
    type: Literal["safetensors"]
    path: Filled
    tensor_key: Filled


class Workload(BaseModel):
    axes: dict[str, Size]
    inputs: dict[str, Random | Scalar | Stored]
    uuid: Filled


class Source(BaseModel):
    path: Filled
    content: Filled


class Spec(BaseModel):
    language: Literal["python", "triton", "cpp", "cuda", "tilelang"]
    target_hardware: Annotated[list[str], Field(min_length=1)]
    entry_point: Annotated[str, Field(pattern=r"^[^:]+::[^:]+$")]
    dependencies: list[Filled] = []
    destination_passing_style: bool = True


class Solution(BaseModel):
    name: Filled
    definition: Filled
    author: Filled
    spec: Spec
    sources: Annotated[list[Source], Field(min_length=1)]

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        paths = [one.path for one in self.sources]
        assert len(set(paths)) == len(paths)
        assert self.spec.entry_point.split("::")[0] in paths
        assert not any(path.startswith("/") or ".." in path.split("/") for path in paths)
        return self


class Correctness(BaseModel):
    max_relative_error: Latency
    max_absolute_error: Latency
    extra: dict[str, Any] | None = None


class Performance(BaseModel):
    latency_ms: Latency
    reference_latency_ms: Latency = 0.0
    speedup_factor: Latency = 0.0


class Environment(BaseModel):
    hardware: Filled
    libs: dict[str, str] = {}


class Evaluation(BaseModel):
    status: Literal[
        "PASSED", "INCORRECT_SHAPE", "INCORRECT_NUMERICAL", "INCORRECT_DTYPE", "RUNTIME_ERROR", "COMPILE_ERROR",
        "TIMEOUT",
    ]  # fmt: skip
    environment: Environment
    timestamp: Filled
    log: str = ""
    correctness: Correctness | None = None
    performance: Performance | None = None

    @model_validator(mode="after")
    def _has_what_its_status_asks(self) -> Self:
        assert (self.correctness is not None) == (self.status in ("PASSED", "INCORRECT_NUMERICAL"))
        assert (self.performance is not None) == (self.status == "PASSED")
        return self


class Trace(BaseModel):
    definition: Filled
    workload: Workload
    solution: str | None = None
    evaluation: Evaluation | None = None


def documents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each document of a trace set with its kind."""
    for kind, pattern in (("Definition", "definitions/**/*.json"), ("Solution", "solutions/**/*.json")):
        yield from ((kind, path.read_bytes()) for path in sorted(folder.glob(pattern)))
    for pattern in ("workloads/**/*.jsonl", "traces/**/*.jsonl"):
        for path in sorted(folder.glob(pattern)):
            yield from (("Trace", line) for line in path.read_bytes().splitlines())


def validate(folder: Path) -> int:
    """Check every document of a trace set and return how many there are. Raises: ValidationError."""
    count = 0
    try:
        import flashinfer_bench.data as theirs
    except ImportError:
        theirs = None
    for kind, data in documents(folder):
        {"Definition": Definition, "Solution": Solution, "Trace": Trace}[kind].model_validate_json(data)
        if theirs is not None:
            getattr(theirs, kind).model_validate_json(data)
        count += 1
    return count
