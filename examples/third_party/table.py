"""Reads subjects.yaml: third-party kernels as subjects, each with the package that it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ledger.callables.argument_list import first_dtype, parse_arguments, with_keys
from ledger.callables.subject import SELF, Pass, Subject, checked
from ledger.errors import InputError
from ledger.record_files import parse_yaml
from ledger.records import Dtype

TABLE = Path(__file__).with_name("subjects.yaml")


@dataclass(frozen=True)
class Package:
    """Hold a distribution of the package index and how its kernels are licensed."""

    distribution: str
    version: str
    licence: str

    def missing(self) -> str | None:
        """Return why its kernels cannot run here, None where they can; torch may have any version."""
        try:
            found = version(self.distribution)
        except PackageNotFoundError:
            found = "not installed"
        if found == self.version or (self.distribution == "torch" and found != "not installed"):
            return None
        wanted = f"{self.distribution}=={self.version}"
        return f"{self.distribution}: got {found}; expected {self.version}: pip install {wanted}"


@dataclass(frozen=True)
class Entry:
    """Hold a subject with its shape and stated work; None where torch counts it."""

    subject: Subject
    shape: dict[str, int]
    dtype: Dtype
    package: Package
    args: str
    flops: int | None
    bytes: int | None

    @property
    def name(self) -> str:
        """Return module:function, with the pass where it is not the forward one."""
        short = self.subject.name.rpartition(".")[2]
        return short if self.subject.run == "forward" else f"{short} {self.subject.run}"

    def options(self) -> str:
        """Return what `ledger predict` takes to forecast it, beside hardware, regime and percent."""
        shape = ",".join(f"{key}={size}" for key, size in self.shape.items())
        given = {"dtype": self.dtype, "pass": self.subject.run, "flops": self.flops, "bytes": self.bytes}
        if self.subject.reference != SELF:
            given["reference"] = self.subject.reference
        rest = " ".join(f"--{name} {value}" for name, value in given.items() if value is not None)
        return f"{self.subject.name} --args '{self.args}' --shape {shape} {rest}"


@cache
def entries() -> tuple[Entry, ...]:
    """Return all subjects in the order of the table. Raises: InputError."""
    table = parse_yaml(TABLE.read_bytes(), what=TABLE.name)
    packages = {module: Package(**given) for module, given in table["packages"].items()}
    return tuple(_entry(row, packages) for row in table["subjects"])


def _entry(row: dict[str, Any], packages: dict[str, Package]) -> Entry:
    arguments, shape = with_keys(parse_arguments(row["args"]), row["shape"])
    run: Pass = row.get("pass", "forward")
    subject = checked(Subject(row["kernel"], arguments, run, row.get("reference", SELF)))
    module = subject.module.rpartition(".")[2]
    if module not in packages:
        raise InputError(f"{TABLE.name}: {subject.name}: no package {module!r}; expected one of: {', '.join(packages)}")
    return Entry(
        subject=subject,
        shape=shape,
        dtype=row.get("dtype") or first_dtype(arguments),
        package=packages[module],
        args=row["args"],
        flops=row.get("flops"),
        bytes=row.get("bytes"),
    )
