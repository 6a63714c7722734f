"""Measures the one cell of an order in a process of its own on a node, for fleet.node.

Usage: python -m ledger.fleet.cell_process JOB, where JOB is the JSON that fleet.node wrote. The measurement goes to the
job's folder, as `ledger measure` writes it; a reason why there is none goes to the job's file `reason`.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from ledger.analysis.revealing import masked_text
from ledger.canonical import validate
from ledger.device.machine_names import machine_names
from ledger.device.parent_process import end_with_parent
from ledger.errors import LedgerError
from ledger.measure.apart import Limits
from ledger.measure.ordered_kernels import kernels_of
from ledger.measure.run_order import run_order
from ledger.record_files import read_record
from ledger.records import Attempt, Order


def main(job: Path) -> int:
    """Measure the cell of a job."""
    asked = json.loads(job.read_text(encoding="utf-8"))
    end_with_parent(asked["parent"])
    # Ray starts workers with a lower priority than others have; only root may raise it.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    order, out = read_record(Order, Path(asked["order"])), Path(asked["out"])
    limit = asked["time_limit_s"]
    try:
        summary = run_order(
            order,
            order_sha256=asked["order_sha256"],
            out=out,
            kernels=kernels_of(order, folder=out),
            counters=asked["counters"],
            full_cells=frozenset(asked["full_cells"]),
            limits=None if limit is None else Limits(time_s=limit),
            node=asked["node"],
            attempts=tuple(validate(Attempt, one, what="attempt") for one in asked["attempts"]),
        )
        summary.check_loaded()
    except LedgerError as error:
        Path(asked["reason"]).write_text(masked_text(str(error), machine_names()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
