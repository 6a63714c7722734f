"""Lists small trials of row kernels whose rows start anywhere and lie in a cluster, and wrong twins of them."""

from __future__ import annotations

from functools import partial
from typing import Any

from ledger.records import Dtype

from .checker import Trial
from .kernels import Mutant
from .rowwise import FAR_SCALES

CONFIG: dict[str, Any] = {"variant": "cuda_ragged", "cluster": 8, "num_warps": 8, "pdl": 1}
# Rows, columns, cluster and warps: rows that start anywhere, at even elements and at half vectors; threads and CTAs
# without a vector, several vectors a thread, the largest cluster.
_TRIALS = (
    (1, 1, 2, 1), (5, 3, 2, 1), (9, 84, 2, 1), (3, 2051, 2, 2), (2, 2047, 8, 1), (2, 4099, 2, 4), (3, 1100, 4, 2),
    (3, 1537, 16, 1), (1, 9, 4, 1), (4, 261, 2, 2), (2, 3590, 4, 1),
    (14, 68846, 8, 16), (130, 3001, 2, 4), (20, 24643, 4, 8), (9, 16370, 2, 8), (3, 100004, 16, 8),
)  # fmt: skip


def ragged_trials(name: str, dtype: Dtype) -> tuple[Trial, ...]:
    """Return the trials of a kernel, of rows that are no whole vectors."""
    vector = 4 if dtype == "fp32" else 8
    return (
        *(
            Trial({"M": m, "N": n}, dtype, {**CONFIG, "cluster": cluster, "num_warps": warps})
            for m, n, cluster, warps in _TRIALS
            if n % vector
        ),
        Trial({"M": 3, "N": 131}, dtype, {**CONFIG, "cluster": 2, "num_warps": 1}, FAR_SCALES[name]),
    )


def _of_all(kernel: str) -> tuple[Mutant, ...]:
    """Return wrong twins of what all operations share."""
    edits = (
        ("lost_last_vectors", "if (vector >= end) break;", "if (vector >= end - 1) break;"),
        ("rows_of_the_first", "const i64 start = (i64)row * N_COLS;", "const i64 start = 0;"),
        ("neighbours_count", "if (!row.holds(vector, j)) set_element(words, j, NONE);", "if (false) {}"),
        ("neighbours_written", "if (!row.holds(vector, j)) continue;", ""),
        ("reads_behind_the_end", "if (vector < end && row.at + vector < n_whole) raw[i]", "if (vector < end) raw[i]"),
        ("lost_end_of_x", "row.at + vector < n_whole ? 0 :", "true ? 0 :"),
        ("fewer_vectors", "2 * VECTOR - STEP - 1) / VECTOR", "VECTOR - 1) / VECTOR"),
        ("parts_overlap", "rank * PART + thread, end", "rank * (PART - 1) + thread, end"),
    )
    return tuple(Mutant(kernel, f"ragged_{name}", find, replace, _FILE) for name, find, replace in edits)


_FILE = "common/row_ragged.cu"
_WRONG = partial(Mutant, file=_FILE)
MUTANTS: tuple[Mutant, ...] = (
    *(one for kernel in ("rmsnorm", "layernorm", "softmax") for one in _of_all(kernel)),
    _WRONG("rmsnorm", "ragged_gain_not_shifted", "apart == 16 ? w[i + 4]", "true ? w[i + 4]"),
    _WRONG("rmsnorm", "ragged_gain_shifted_by_words", "apart % 4 * 8", "0"),
    _WRONG("rmsnorm", "ragged_gain_not_shifted_by_words", "apart & 4 ? w[i + 1]", "false ? w[i + 1]"),
    _WRONG("rmsnorm", "ragged_gain_not_shifted_by_two", "apart & 8 ? w[i + 2]", "false ? w[i + 2]"),
    _WRONG("rmsnorm", "ragged_gain_of_the_first_part", "rank * PART + i - 1, left", "i - 1, left"),
    _WRONG("rmsnorm", "ragged_gain_without_its_end", "if (j < left)", "if (j + 1 < left)"),
    _WRONG("rmsnorm", "ragged_gain_behind_its_end", "if (left >= VECTOR) {", "if (left > 0) {"),
    _WRONG("rmsnorm", "ragged_half_of_two_words", "word[STEP * ELEMENT == 8]", "word[0]"),
    _WRONG("softmax", "ragged_element_of_the_word", "word[0] >> 16 * (j % 2)", "word[0]"),
    _WRONG("rmsnorm", "ragged_dropped_eps", "(1.0f / N_COLS) + eps", "(1.0f / N_COLS)"),
    _WRONG("layernorm", "ragged_dropped_bias", "* rstd * g[j] + b[j]", "* rstd * g[j]"),
    _WRONG("layernorm", "ragged_padding_in_variance", "end && row.holds(first + i * THREADS, j)", "end"),
    _WRONG("softmax", "ragged_unscaled", "LOG2_E, -log_sum)", "LOG2_E, 0.0f)"),
    _WRONG("softmax", "ragged_sum_without_maximum", "exp_of(v[j] - to)", "exp_of(v[j])"),
)
# Wrong twins that read or write where they must not, with right results.
SAME_RESULTS = ("ragged_reads_behind_the_end", "ragged_gain_behind_its_end")
