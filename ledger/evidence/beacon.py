"""Verifies rounds of the public beacon drand, chain quicknet: BLS signatures on G1 of BLS12-381, by py_ecc.

Source: drand.love, scheme bls-unchained-g1-rfc9380: the message is SHA-256 of the round as 8 big-endian bytes, hashed
to G1 by RFC 9380. The public key is the chain's own and stands here, so no network is asked.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from ledger.errors import EvidenceRefused, MachineError

CHAIN = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
PUBLIC_KEY = (
    "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451"
    "0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a"
)
_SUITE = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"


@lru_cache(maxsize=256)
def check_signature(number: int, signature: str) -> None:
    """Check that quicknet signed a round; takes about two seconds.

    signature: 96 hexadecimal digits. Raises: EvidenceRefused; MachineError where py_ecc is not installed.
    """
    try:
        from py_ecc.bls.hash_to_curve import hash_to_G1
        from py_ecc.bls.point_compression import decompress_G1, decompress_G2
        from py_ecc.optimized_bls12_381 import G2, curve_order, is_inf, multiply, pairing
    except ImportError as error:
        raise MachineError("a round of drand is verified by py_ecc: pip install 'roofline-ledger[draw]'") from error
    key, half = bytes.fromhex(PUBLIC_KEY), len(PUBLIC_KEY) // 4
    public = decompress_G2((int.from_bytes(key[:half], "big"), int.from_bytes(key[half:], "big")))
    try:
        point = decompress_G1(int.from_bytes(bytes.fromhex(signature), "big"))
    except (ValueError, AssertionError) as error:
        raise EvidenceRefused(f"round {number}: its signature is no point of the curve") from error
    message = hash_to_G1(hashlib.sha256(number.to_bytes(8, "big")).digest(), _SUITE, hashlib.sha256)
    # A point outside of the subgroup of prime order is no signature.
    sound = not is_inf(point) and is_inf(multiply(point, curve_order))
    if not sound or pairing(G2, point) != pairing(public, message):
        raise EvidenceRefused(f"round {number}: its signature is not quicknet's")
