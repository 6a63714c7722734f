"""Names every limit on what an auditor spends on a stranger's ledger, with its unit. Pure; imports nothing of ledger.

Two kinds, told apart in docs/security.md. A limit on one record or object is a rule of the format that no ledger has
ever written beyond: what breaks it is refused. A budget of a whole audit says what this machine is willing to spend:
beyond it nothing is concluded, so the verdict is undetermined, unless something was refused before.
"""

from __future__ import annotations

# Limits on one record or object: beyond them it is refused.

MAX_RECORD_BYTES = 32 * 1024**2
"""Bytes of one record."""
MAX_RECORD_VALUES = 1_000_000
"""Commas and brackets in one record: no fewer than its JSON values."""
MAX_PROFILE_BYTES = 4 * 1024**2
"""Bytes of a sealed hardware profile, and of a manifest of sources."""
MAX_OBJECT_BYTES = 256 * 1024**2
"""Bytes of one attachment or other object."""
MAX_RECORD_SAMPLES = 1 << 16
"""Output samples in one measurement."""

# Budgets of git, for a clone and for each question to it.

MAX_REPOSITORY_BYTES = 4 * 1024**3
"""Bytes of a file that a clone may write: its pack is one file."""
CLONE_TIMEOUT_S = 600
"""Seconds on the wall for a clone."""
CLONE_CPU_S = 180
"""Seconds of processor time for one process of a clone."""
MAX_ANSWER_BYTES = 192 * 1024**2
"""Bytes of one answer of git: about a million commits, or as many ledger files."""
MAX_ANSWER_S = 300
"""Seconds on the wall for one answer of git."""
MAX_ANSWER_CPU_S = 120
"""Seconds of processor time for one answer of git, and for all objects together."""
MAX_GIT_MEMORY_BYTES = 2 * 1024**3
"""Address space of one git process."""
MAX_MESSAGE_BYTES = 1024**2
"""Bytes kept of what git says on its standard error."""
MAX_GIT_FILES = 5_000_000
"""Files of a git folder that are looked at: a link in it may lead to a whole disk."""

# Budgets of one audit.

MAX_RECORDS = 300_000
"""Seals, measurements and withdrawals at the commit."""
MAX_READ_BYTES = 16 * 1024**3
"""Bytes of all records and objects together, unpacked."""
MAX_WEIGHT_BYTES = 5 * 1024**3 // 2
"""Memory of all records that are kept, estimated by `weight_bytes`, equal parts once; counted before parsing."""
MAX_PROFILES_BYTES = 5 * 1024**3 // 16
"""The same of profiles and manifests."""
MAX_PASSING_BYTES = 5 * 1024**3
"""The same of manifests and answers of forecasters, which are dropped once they are checked."""
MAX_RESTED = 20_000_000
"""Measurements that the answers of forecasters rest on, of all seals together."""
MAX_SET_BYTES = 256 * 1024**2
"""Memory of the sets of seals that the graph and the chain need."""
MAX_FINDINGS = 10_000
"""Findings that are kept of those that refuse, and of those that disclose; the others are counted."""
MAX_FINDINGS_OF_A_KIND = 50
"""Findings of one code about one file."""
MAX_REVISION_STEPS = 10_000_000
"""Commits between claims and the commits that they name, all claims together."""
MAX_REVISIONS_READ = 4000
"""Versions of sources that claims name and that are compared with their commits."""
MAX_LISTED_REVISIONS = 16
"""Earlier forecasts of a cell that are named, the latest ones."""
MAX_SCANNED_BYTES = 16 * 1024**2
"""Sources that one audit scans: parsing takes about a second for each MiB."""
MAX_IMPORTS_COMPARED = 2_000_000
"""Imports of scanned sources that are compared with manifests."""
MAX_READS = 3 * 10**9
"""Input elements that one audit makes again to recompute samples."""
MAX_ELEMENT_READS = 1 << 26
"""Input elements of one output element that is recomputed."""
MAX_READS_AT_ONCE = 1 << 22
"""Input elements that are made at once for it: about 150 bytes of memory each."""

# Limits on a callable that is measured, in a process of its own.

CALLABLE_TIME_S = 1800
"""Seconds on the wall for one cell of a callable, with its compilation."""
CALLABLE_MEMORY_SHARE = 0.8
"""Share of the machine's available memory that a callable on the CPU may allocate."""

# Budgets of notes: what is left out of them changes no verdict.

MAX_NOTES = 20
"""Notes of one kind."""
MAX_REFS = 100_000
"""Other references that are looked at."""
OTHER_REFS_TIMEOUT_S = 60
"""Seconds on the wall to fetch what only references outside of branches and tags hold."""
MAX_WORK_TREE_FILES = 500_000
"""Files and folders of a work tree that are compared with the commit."""
MAX_WORK_TREE_BYTES = 1024**3
"""Bytes of a work tree's files that are hashed for that."""

_VALUE_BYTES, _PART_BYTES = 64, 900
MAX_PULSES = 100
"""Rounds of drand that one audit verifies, at about two seconds each."""


def values_of(data: bytes) -> int:
    """Return a number of commas and brackets in JSON text; it has no more values than that and one."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def weight_bytes(data: bytes) -> int:
    """Return an upper estimate of the memory of a parsed record: a few words a value, a Python object a part."""
    return len(data) + _VALUE_BYTES * data.count(b",") + _PART_BYTES * data.count(b"{") + 80 * data.count(b"[")
