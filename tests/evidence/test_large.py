"""Holds that the cost of an audit grows with the number of records and no faster, by counting instead of timing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from many_records import KERNELS, write_many

from ledger.evidence.audit import audit
from ledger.git.reader import Blobs

SIZES = (50, 150, 250)


class Count:
    """Count git processes, reads of objects and calls of Python functions during one audit."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.processes = self.reads = self.calls = 0
        begin, read = subprocess.Popen.__init__, Blobs.read

        def counted_begin(process, *args, **kwargs):
            self.processes += 1
            begin(process, *args, **kwargs)

        def counted_read(blobs, *args):
            self.reads += 1
            return read(blobs, *args)

        patch.setattr(subprocess.Popen, "__init__", counted_begin)
        patch.setattr(Blobs, "read", counted_read)
        before = sys.getprofile()
        sys.setprofile(self._call)
        try:
            self.result = audit(str(folder))
        finally:
            sys.setprofile(before)

    def _call(self, _frame: object, event: str, _argument: object) -> None:
        self.calls += event == "call"


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    found = {}
    with pytest.MonkeyPatch.context() as outer:
        for size in (SIZES[0], *SIZES):
            # The first audit of a process also fills caches and imports modules.
            if not (folder / str(size)).exists():
                write_many(folder / str(size), size)
            with outer.context() as patch:
                found[size] = Count(folder / str(size), patch)
    return found


def test_the_large_ledgers_hold(counts):
    for size, count in counts.items():
        assert (count.result.verdict, len(count.result.findings)) == ("holds", 0)
        assert count.result.reason == f"{size} forecasts: {size} measured"


def test_as_many_git_processes_whatever_the_size(counts):
    assert len({count.processes for count in counts.values()}) == 1
    assert counts[SIZES[0]].processes <= 12


def test_each_record_is_read_once(counts):
    """The profile, the manifests and their source are as many in every size, and are read for two checks."""
    objects = {count.reads - 2 * size for size, count in counts.items()}
    assert len(objects) == 1
    assert objects.pop() <= 3 * (len(KERNELS) + 2)


def test_calls_grow_in_proportion(counts):
    """Equal steps in size cost equal numbers of calls, to a percent; a quadratic part would show as a difference."""
    few, more, most = (counts[size].calls for size in SIZES)
    assert most - more == pytest.approx(more - few, rel=0.01)


def test_a_count_that_is_quadratic_would_show(counts):
    few, more, most = (counts[size].calls + size * size / 20 for size in SIZES)
    assert most - more != pytest.approx(more - few, rel=0.01)
