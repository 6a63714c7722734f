"""Takes in what a node returns of a cell: checks that it is the cell's measurement and writes it beside the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath

from ledger.canonical import decode, object_id
from ledger.errors import EvidenceRefused, LedgerError
from ledger.measure.run_order import result_path
from ledger.record_files import write_atomically
from ledger.records import Digest, MeasurementV2, OrderedCell


def take(
    files: Mapping[str, bytes], *, cell: OrderedCell, order_sha256: Digest | None, node: str, out: FilePath
) -> MeasurementV2:
    """Write the measurement of a cell and its attachments; the measurement last, so that it is never there alone.

    Raises: EvidenceRefused where the files are not the measurement of this cell on this node, or are altered.
    """
    path = result_path(out, cell)
    record = _record(files.get(path.name, b""), path.name)
    told = (record.seal, record.cell, record.run, record.anchor, record.case, record.order_sha256, record.node)
    if told != (cell.seal, cell.cell, cell.run, cell.anchor, cell.case, order_sha256, node):
        raise EvidenceRefused(f"{path.name}: is of another cell, order or node; expected {cell.cell} on {node}")
    for attachment in record.attachments:
        data = files.get(f"objects/{attachment.sha256}")
        if data is None or object_id(data) != attachment.sha256:
            raise EvidenceRefused(f"{path.name}: attachment {attachment.name} did not arrive as it was written")
        write_atomically(out / "objects" / attachment.sha256, data)
    write_atomically(path, files[path.name])
    return record


def _record(data: bytes, name: str) -> MeasurementV2:
    try:
        return decode(MeasurementV2, data, what=name)
    except LedgerError as error:
        raise EvidenceRefused(f"{name}: no measurement came from the node ({error})") from error
