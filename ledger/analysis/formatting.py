"""Formats numbers, and makes text of records safe to print. Pure.

Every field of a record was written by somebody else. What reaches a terminal or a page goes through `harmless`, so
that no escape sequence, bidirectional mark or invisible character of a field can act there.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.records import Case, Path

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIMES = ((10**12, "s"), (10**9, "ms"), (10**6, "µs"), (10**3, "ns"))
_USUAL = {key: number for number, key in enumerate("BMNKHO")}
_MOST_LITERAL = 60
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

PATH_NAMES: dict[Path, str] = {
    "fp64": "fp64 cores",
    "fp64_tensor": "fp64 tensor cores",
    "fp32": "fp32 cores",
    "tf32_tensor": "tf32 tensor cores",
    "fp16": "fp16 cores",
    "fp16_tensor": "fp16 tensor cores",
    "bf16_tensor": "bf16 tensor cores",
    "fp8_tensor": "fp8 tensor cores",
    "int8_tensor": "int8 tensor cores",
    "fp4_tensor": "fp4 tensor cores",
}


def harmless(text: str, limit: int | None = None) -> str:
    """Return text on one line in which every control, format, private or unassigned character is spelled out.

    Tabs and line breaks become one space each; any other such character becomes `<U+202E>`. With `limit`, longer
    text is cut and ends in an ellipsis.
    """
    plain = text.isascii() and text.isprintable()
    shown = text if plain else "".join(_shown(character) for character in text)
    return shown if limit is None or len(shown) <= limit else shown[: limit - 1] + "…"


def _shown(character: str) -> str:
    if character in "\t\n\r":
        return " "
    return f"<U+{ord(character):04X}>" if unicodedata.category(character) in _UNSAFE else character


def si(value: float, unit: str) -> str:
    """Return a quantity in base units with a decimal prefix and three significant digits: 3.35 TB/s."""
    # A profile may say more than a float holds.
    value = min(value, 1e300)
    scale, prefix = next(((s, p) for s, p in _PREFIXES if abs(value) >= s), (1.0, ""))
    scaled = value / scale
    whole = abs(scaled) >= 100 or (not prefix and scaled == int(scaled))
    digits = 0 if whole else 1 if abs(scaled) >= 10 else 2
    return f"{scaled:.{digits}f} {prefix}{unit}"


def duration(picoseconds: int, *others: int) -> str:
    """Return a time in the unit that suits it, `others` behind it as a range in the same unit: 12.4 µs (12.3–12.6)."""
    scale, unit = next(((s, u) for s, u in _TIMES if picoseconds >= s), _TIMES[-1])
    scaled = picoseconds / scale
    digits = 0 if scaled >= 100 else 1 if scaled >= 10 else 2
    words = f"{scaled:.{digits}f} {unit}"
    return f"{words} ({'–'.join(f'{other / scale:.{digits}f}' for other in others)})" if others else words


def signed(value: float, digits: int = 1) -> str:
    """Return a number with its sign, one decimal by default, the minus as U+2212; what rounds to zero has no sign."""
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0:
        return text
    return ("+" if value > 0 else "\u2212") + text


def count_text(number: int, noun: str) -> str:
    """Return a count with its noun: 1 cell, 2 cells."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def kernel_tail(name: str, limit: int) -> str:
    """Return a kernel's or callable's name; of one that is too long its end: …torch_products:linear."""
    shown = harmless(name)
    if len(shown) <= limit:
        return shown
    module, colon, function = shown.rpartition(":")
    tail = f"…{module.rpartition('.')[2]}{colon}{function}"
    return tail if colon and len(tail) <= limit else f"…{shown[len(shown) - limit + 1 :]}"


def usual_order(shape: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the sizes of a shape, the usual letters in their usual order."""
    return sorted(shape.items(), key=lambda item: (_USUAL.get(item[0], len(_USUAL)), item[0]))


def shape_text(shape: Mapping[str, int]) -> str:
    """Return a shape with equal sizes joined: B=32 H=O=4096."""
    return _shape_text(tuple(shape.items()))


# A long listing names each shape several times.
@functools.lru_cache(maxsize=1 << 15)
def _shape_text(sizes: tuple[tuple[str, int], ...]) -> str:
    joined: dict[int, list[str]] = {}
    for key, size in usual_order(dict(sizes)):
        joined.setdefault(size, []).append(key)
    return " ".join(f"{'='.join(keys)}={size}" for size, keys in joined.items())


def sizes_text(case: Case) -> str:
    """Return the sizes of a case, and what else a callable's call has: B=256 x=y=[B,1024] eps=1e-06 backward.

    These are sizes that stand as numbers in its arguments, arguments that are no tensors, and passes beside forward.
    """
    literal, joined = {name.partition(".")[0] for name in case.literal_sizes}, dict[str, list[str]]()
    arguments = getattr(case, "arguments", None) or ()
    for one in arguments:
        if one.name in literal:
            joined.setdefault(f"[{','.join(one.dims)}]", []).append(one.name)
    found = [f"{'='.join(names)}={dims}" for dims, names in joined.items()]
    found += [f"{one.name}={one.value}" for one in arguments if one.dims is None]
    run = str(case.config.get("pass", "forward")) if arguments else "forward"
    words = (shape_text(case.shape), harmless(" ".join(found), _MOST_LITERAL), run if run != "forward" else "")
    return " ".join(filter(None, words))


def case_text(case: Case) -> str:
    """Return the name of a case: rmsnorm_matmul B=32 H=O=4096 fp16 on h200."""
    return f"{case.kernel} {sizes_text(case)} {case.dtype} on {case.hardware}"
