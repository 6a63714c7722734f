"""Checks that every package which the distribution asks for has a permissive licence; run by `make supply-chain`.

Read is what installed packages declare: License-Expression, else classifiers, else License, else the text they bring.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = "roofline-ledger"
PERMISSIVE = re.compile(
    r"\b(MIT|MIT-0|BSD|0BSD|BSD-[23]-Clause|Apache|ISC|PSF|PSF-2\.0|Python Software Foundation|Zlib|CC0-1\.0|Unlicense|"
    r"HPND|MIT-CMU|NCSA)\b",
    re.IGNORECASE,
)
COPYLEFT = re.compile(r"\b(A?GPL|LGPL|EUPL|SSPL|General Public|CDDL|EPL)", re.IGNORECASE)
# Certificates; and two of NVIDIA's that measuring may load, which are asked for by an extra and never shipped.
ACCEPTED = {"certifi": "Mozilla Public License 2.0", "ncu-report": "Proprietary", "nvidia-cuda-nvrtc": "Proprietary"}
MIT_TEXT = "Permission is hereby granted, free of charge, to any person obtaining a"


def required(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> Iterator[str]:
    """Yield the names of all packages that one asks for on this machine, directly or not."""
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    try:
        lines = distribution(name).requires or []
    except PackageNotFoundError:
        return
    for line in lines:
        asked = Requirement(line)
        holds = asked.marker is None or any(asked.marker.evaluate({"extra": extra}) for extra in extras or {""})
        if holds:
            found = str(canonicalize_name(asked.name))
            yield found
            yield from required(found, frozenset(asked.extras), seen)


def licence(found: Distribution) -> str:
    """Return what a package declares, in one line."""
    metadata = found.metadata
    classifiers = [text.split(" :: ")[-1] for text in metadata.get_all("Classifier", []) if text.startswith("License")]
    told = metadata.get("License-Expression") or "; ".join(classifiers) or metadata.get("License") or ""
    texts = (file.locate() for file in found.files or () if file.name.startswith("LICENSE")) if not told else ()
    if any(MIT_TEXT in Path(str(path)).read_text(encoding="utf-8") for path in texts):
        told = "MIT"
    return " ".join(told.split())[:200]


def is_permissive(name: str, text: str) -> bool:
    """Tell whether a licence lets anybody use, change and ship the package."""
    if name in ACCEPTED:
        return ACCEPTED[name] in text
    choices = re.split(r"\bOR\b", text)
    return any(PERMISSIVE.search(one) and not COPYLEFT.search(one) for one in choices)


def findings(extras: frozenset[str]) -> dict[str, str]:
    """Return the licence of each installed package that is asked for and not permissive."""
    found = {}
    for name in sorted(set(required(OURS, extras, set()))):
        try:
            text = licence(distribution(name))
        except PackageNotFoundError:
            continue
        if not is_permissive(name, text):
            found[name] = text or "no licence declared"
    return found


if __name__ == "__main__":
    wrong = findings(frozenset(sys.argv[1:]))
    for package, text in wrong.items():
        print(f"{package}: {text}; expected a permissive licence", file=sys.stderr)
    sys.exit(bool(wrong))
