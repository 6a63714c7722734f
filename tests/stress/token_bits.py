"""Flips every bit of a time token and checks that it is refused, or still says the very same of the very same record.

python tests/stress/token_bits.py
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(TESTS.parent)]

from authority import Authority

from ledger.canonical import id_input, record_id
from ledger.errors import LedgerError
from ledger.evidence.timestamps import load_roots, stamp, token_time
from ledger.records import Prediction


def main() -> None:
    """Flip them all and count."""
    data = b'{"a":1}'
    identity = record_id(Prediction, data)
    with tempfile.TemporaryDirectory() as name, Authority(Path(name) / "tsa") as authority:
        token, roots = stamp(id_input(Prediction, data), authority.url), load_roots(authority.root)
        truth = token_time(token, identity, roots)
        outcome: Counter[str] = Counter()
        for bit in range(8 * len(token)):
            flipped = bytearray(token)
            flipped[bit // 8] ^= 1 << bit % 8
            try:
                outcome[
                    "the same time" if token_time(bytes(flipped), identity, roots) == truth else "another time"
                ] += 1
            except LedgerError as error:
                outcome[type(error).__name__] += 1
    print(f"{8 * len(token)} bits of a token of {len(token)} bytes: {dict(outcome)}")
    raise SystemExit(bool(outcome["another time"]))


if __name__ == "__main__":
    main()
