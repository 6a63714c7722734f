"""Derives kernels/flash_attention_causal.py from kernels/flash_attention.py: one program, sealed as two files.

A seal holds one kernel file, so the causal kernel cannot import the other; this list is all that may differ. Run as a
script it writes the file anew; tests/test_kernel_attention.py checks that it is up to date.
"""

from __future__ import annotations

from pathlib import Path

KERNELS = Path(__file__).parents[1] / "kernels"
EDITS = (
    ("every query seeing every key; forward only", "no query seeing a later key; forward only"),
    ("Σ_j softmax_j(q", "Σ_j≤i softmax_j≤i(q"),
    ("model excludes: re-reads", "model excludes: masked scores in the tiles on the diagonal, re-reads"),
    ('_NAME = "flash_attention"', '_NAME = "flash_attention_causal"'),
    ("CAUSAL = False", "CAUSAL = True"),
    ("import FLASH_ATTENTION, Shape", "import FLASH_ATTENTION_CAUSAL, Shape"),
    ("operation=FLASH_ATTENTION,", "operation=FLASH_ATTENTION_CAUSAL,"),
    ("def flash_attention_kernel(", "def flash_attention_causal_kernel("),
    ("function=flash_attention_kernel,", "function=flash_attention_causal_kernel,"),
    ("        flash_attention_kernel[grid](", "        flash_attention_causal_kernel[grid]("),
    ("def flash_attention_pipelined(", "def flash_attention_causal_pipelined("),
    ("function=flash_attention_pipelined,", "function=flash_attention_causal_pipelined,"),
    ("        flash_attention_pipelined[programs](", "        flash_attention_causal_pipelined[programs]("),
    ('launched="^flash_attention_(kernel|pipelined)$"', 'launched="^flash_attention_causal_(kernel|pipelined)$"'),
    ("def flash_attention(", "def flash_attention_causal("),
    ('"""Return softmax(q', '"""Return, over the keys up to each query\'s own, softmax(q'),
    ('summary="attention of', 'summary="causal attention of'),
    ('formula="y = softmax(q', 'formula="each query sees the keys up to its own: y = softmax(q'),
    ('    excludes="re-reads', '    excludes="masked scores on the diagonal, "\n    "re-reads'),
)  # fmt: skip


def causal_twin(source: str) -> str:
    """Return the causal kernel's source."""
    for find, replace in EDITS:
        assert source.count(find) == 1, f"{find!r} occurs {source.count(find)} times; expected once"
        source = source.replace(find, replace)
    return source


if __name__ == "__main__":
    source = (KERNELS / "flash_attention.py").read_text(encoding="utf-8")
    (KERNELS / "flash_attention_causal.py").write_text(causal_twin(source), encoding="utf-8")
