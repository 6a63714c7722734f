"""Derives a measurement's inputs from its seal. Pure integer arithmetic, the same on every machine.

A 64-bit key comes from HKDF-SHA256 (RFC 5869) over the seal's id, the cell, the trusted-time anchor and the run.
Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11) turns the key and a counter into
bytes, and each byte into a small odd integer, which every float format of interest holds exactly. No transcendental
function is involved, so any machine, with or without a GPU, makes the same inputs.

The arithmetic runs on signed 64-bit arrays of any library whose integers wrap (NumPy, torch); this module imports
neither. docs/format.md defines every step.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Any, Literal

from ledger.canonical import canonical_without_fractions
from ledger.records import Digest

_SALT = b"ledger/binding/v1"
_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_LOW = 0xFFFFFFFF

BLOCK_BYTES = 16
POSITION_STREAM = 0xFFFFFFFF

Distribution = Literal["symmetric", "positive", "short", "byte", "bell", "below"]
WORD_DISTRIBUTIONS = ("bell", "below")
"""Distributions that take a whole word of Philox for an element, not a byte of one."""


@dataclass(frozen=True)
class Generated:
    """Describe how one input tensor is filled.

    symmetric: k · 2**exponent with k odd in [-255, 255], uniform (standard deviation 147.8 · 2**exponent).
    positive: k · 2**exponent with k in [48, 175], uniform.
    short: k · 2**exponent with k odd in [-15, 15], uniform (standard deviation 9.22 · 2**exponent).
    byte: k · 2**exponent with k in [-128, 127], uniform (standard deviation 73.9 · 2**exponent).
    bell: k · 2**exponent with k in [-254, 254], the sum of four uniform integers (deviation 73.9 · 2**exponent).
    below: an integer from 0 to `below` - 1, uniform; exponent 0.
    All floats are exact in bf16, fp16 (while normal) and fp32; short also in fp8 e4m3, and byte at exponent 0 in int8.
    """

    distribution: Distribution
    exponent: int
    below: int | None = None


def derive_key(*, seal: Digest, cell: str, run: int, anchor: Digest | None) -> tuple[int, int]:
    """Return the Philox key (two 32-bit words) of one run of one sealed cell."""
    info = canonical_without_fractions({"anchor": anchor, "cell": cell, "run": run})
    prk = hmac.digest(_SALT, bytes.fromhex(seal), "sha256")
    okm = hmac.digest(prk, info + b"\x01", "sha256")
    return int.from_bytes(okm[0:4], "little"), int.from_bytes(okm[4:8], "little")


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Return the four 32-bit output words of Philox4x32-10 for arrays of counters.

    Shapes: each word of counter and key an int64 array (or an int) with values in [0, 2**32); they broadcast.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # The product wraps modulo 2**64; masking after the arithmetic shift recovers its high word.
        product_0 = c0 * _MULTIPLIER_0
        product_1 = c2 * _MULTIPLIER_1
        c0, c1, c2, c3 = (
            ((product_1 >> 32) & _LOW) ^ c1 ^ k0,
            product_1 & _LOW,
            ((product_0 >> 32) & _LOW) ^ c3 ^ k1,
            product_0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL_0) & _LOW, (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


def element_integers(index: Any, *, key: tuple[int, int], tensor: int, input_set: int, how: Distribution) -> Any:
    """Return the integer k of each element of a tensor, before scaling by 2**exponent.

    Shapes: `index` an int64 array of flat row-major positions; the result has its shape.
    Element i is byte (i mod 16) of Philox block i // 16, little-endian within and across the four words; the counter
    is (block low, block high, tensor number, input set).
    """
    block = index // BLOCK_BYTES
    words = philox((block & _LOW, block >> 32, block * 0 + tensor, block * 0 + input_set), key)
    offset = index % BLOCK_BYTES
    which = offset // 4
    word = words[0] * (which == 0) + words[1] * (which == 1) + words[2] * (which == 2) + words[3] * (which == 3)
    byte = (word >> (8 * (offset % 4))) & 0xFF
    return integers_of_bytes(byte, how)


def integers_of_bytes(byte: Any, how: Distribution) -> Any:
    """Return the integer k that a random byte stands for."""
    if how == "symmetric":
        return 2 * byte - 255
    if how == "positive":
        return 48 + (byte & 127)
    if how == "short":
        return 2 * (byte & 15) - 15
    return byte - 128


def integers_of_words(word: Any, how: Distribution, *, below: int | None) -> Any:
    """Return the integer that a random 32-bit word stands for; element i has word i mod 4 of Philox block i // 4.

    bell: the sum of the four bytes of the word, each without its lowest bit, less 254. below: word · below ÷ 2**32,
    rounded down.
    """
    if how == "bell":
        # Bytes 0 and 2, then 1 and 3: two sums of at most 254 beside each other.
        sums = ((word >> 1) & 0x7F007F) + ((word >> 9) & 0x7F007F)
        return (sums & 0xFFFF) + (sums >> 16) - 254
    assert below is not None, how
    return (word * below) >> 32


def sample_words(arange: Any, *, key: tuple[Any, Any]) -> Any:
    """Return the random word of each sample (0, 1, 2, …); the halves of the key may be arrays that broadcast."""
    return philox((arange, arange * 0, arange * 0 + POSITION_STREAM, arange * 0), key)[0]


def sample_positions(arange: Any, *, key: tuple[int, int], size: int) -> Any:
    """Return flat output positions in [0, size), one for each element of `arange` (0, 1, 2, …), size below 2**31."""
    return (sample_words(arange, key=key) * size) >> 32
