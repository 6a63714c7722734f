"""Defines the releases of Triton and torch with which the kernels compile. Pure; imports nothing of ledger.

A test compares pyproject.toml and the Makefile with these ranges; `make test-triton` compiles every kernel with each of
TRITON_RELEASES. `ledger doctor` reports a release outside its range. A Triton outside it is refused where a kernel
would be compiled or launched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TRITON_RELEASES = ("3.6.0", "3.7.0", "3.7.1", "3.8.0", "3.9.0")
"""Every release on the package index within the range, oldest first."""


@dataclass(frozen=True)
class Supported:
    """Hold the oldest and the newest supported series of a package, as (major, minor), with any patch release."""

    package: str
    oldest: tuple[int, int]
    newest: tuple[int, int]

    @property
    def requirement(self) -> str:
        """Return the range as a requirement of pip."""
        (low_major, low_minor), (major, minor) = self.oldest, self.newest
        return f"{self.package}>={low_major}.{low_minor},<{major}.{minor + 1}"

    def __str__(self) -> str:
        """Return the range as text."""
        (low_major, low_minor), (major, minor) = self.oldest, self.newest
        return f"{low_major}.{low_minor} to {major}.{minor}"

    def holds(self, version: str) -> bool:
        """Return whether a version, such as 3.7.1 or 2.13.0+cpu, is in the range; False for other text."""
        found = re.match(r"(\d+)\.(\d+)(?!\w)", version)
        return found is not None and self.oldest <= (int(found[1]), int(found[2])) <= self.newest


TRITON = Supported("triton", (3, 6), (3, 9))
# torch pins one release of Triton: 2.10 and 2.11 3.6.0, 2.12.0 3.7.0, 2.12.1 and 2.13 3.7.1, 2.14 3.8, 2.15 3.9.
TORCH = Supported("torch", (2, 10), (2, 15))
