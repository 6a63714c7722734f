"""Defines what an import gives: cells of a campaign, files of modules, and what was left out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ledger.problems.documents import Definition, Solution, Trace
from ledger.problems.safetensors import StoredTensor

DTYPES = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8_e4m3",
    "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "uint8": "uint8", "bool": "bool",
}  # fmt: skip
MAX_SUBJECT = 80
MAX_CELL = 150
MAX_HELD_BYTES = 256 * 1024

ReadStored = Callable[[str, str], StoredTensor]
"""Return a tensor of a safetensors file by path and key. Raises: InputError."""


@dataclass(frozen=True)
class Cell:
    """Hold what a campaign says of one workload and solution.

    workload: its line of traces. needs_gpu: whether a CPU cannot run it. instead: of the reference alone, taken where
    no solution can be.
    """

    kernel: str
    args: str
    shape: Mapping[str, int]
    definition: str
    solution: str | None
    uuid: str
    workload: bytes = b""
    reference: str | None = None
    needs_gpu: bool = False
    instead: bool = False


@dataclass(frozen=True)
class Skipped:
    """Say what is no subject, and why."""

    what: str
    reason: str


@dataclass
class Subjects:
    """Hold the files of one problem, by path below its folder, its cells, and what was left out."""

    files: dict[str, bytes] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


@dataclass(frozen=True)
class Problem:
    """Hold a definition with its traces and solutions, and the dotted name of the folder that it is imported into."""

    definition: Definition
    traces: Sequence[Trace]
    solutions: Sequence[Solution]
    package: str
