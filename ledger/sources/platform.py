"""Says which packages are the platform that a kernel runs on, and checks the versions that a seal pins. Pure.

The platform is recorded with every measurement and sealed only on request: the same kernel is forecast on a laptop with
no torch or a CPU build and measured where CUDA is. docs/format.md holds the same list.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping

from ledger.errors import InputError

PLATFORM_DISTRIBUTIONS = ("torch", "triton", "numpy")
PLATFORM_PREFIXES = ("cuda-", "nvidia-")
PLATFORM_MODULES = frozenset({"torch", "triton", "numpy", "cuda", "nvidia", "ledger"})
"""Names under which platform packages are imported, known also where they are not installed."""
PINNABLE = ("python", "ledger", "driver", *PLATFORM_DISTRIBUTIONS)


def normalized(name: str) -> str:
    """Return a distribution's name in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_platform(distribution: str) -> bool:
    """Tell whether a distribution is part of the platform."""
    name = normalized(distribution)
    return name in PLATFORM_DISTRIBUTIONS or name == "roofline-ledger" or name.startswith(PLATFORM_PREFIXES)


def is_platform_module(top: str) -> bool:
    """Tell whether a top-level module belongs to Python's standard library or to the platform."""
    return top in sys.stdlib_module_names or top in PLATFORM_MODULES


def parse_pin(text: str) -> tuple[str, str]:
    """Return package and version specifier of a pin such as torch==2.11.*. Raises: InputError."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    match = re.fullmatch(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*?)\s*([=<>!~].*)", text)
    if match is None:
        raise InputError(f"pin {text!r}: expected a package and a version, such as torch==2.11.*")
    name = normalized(match.group(1))
    if name not in PINNABLE and not name.startswith(PLATFORM_PREFIXES):
        raise InputError(
            f"pin {text!r}: {name} is not a platform package; expected {', '.join(PINNABLE)}, cuda-… or nvidia-… "
            "(other packages that a kernel imports are sealed by themselves)"
        )
    try:
        return name, str(SpecifierSet(match.group(2)))
    except InvalidSpecifier as error:
        raise InputError(f"pin {text!r}: version is not valid ({error}); expected a form such as ==2.11.*") from error


def unreadable_pins(pins: Mapping[str, str]) -> Iterator[str]:
    """Yield a message about each pin that names no platform package or no version."""
    for name, version in pins.items():
        try:
            parse_pin(f"{name}{version}")
        except InputError as error:
            yield str(error)


def contradicted_pins(pins: Mapping[str, str], software: Mapping[str, str]) -> Iterator[str]:
    """Yield a message about each pinned package whose recorded version is another or is not recorded."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    for name, wanted in pins.items():
        got = software.get(name)
        if got is None:
            yield f"{name} is not recorded; sealed is {name}{wanted}"
            continue
        try:
            fits = SpecifierSet(wanted).contains(Version(got), prereleases=True)
        except (InvalidSpecifier, InvalidVersion):
            fits = False
        if not fits:
            yield f"{name} is {got}; sealed is {name}{wanted}"
