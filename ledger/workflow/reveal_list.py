"""Lists what new records and their attached files reveal of a machine, before they are committed for ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from ledger.analysis.revealing import MachineNames, Revealed, in_file, in_record
from ledger.records import Measurement
from ledger.workflow.ingest import Incoming

MAX_LINES = 20


def reveal_lines(incoming: Iterable[Incoming], names: MachineNames) -> Iterator[str]:
    """Yield a line for each thing that measurements reveal besides what was measured, each once."""
    seen: dict[tuple[str, str], list[str]] = {}
    for item in incoming:
        for one in _revealed(item, names):
            seen.setdefault((one.kind, one.text), []).append(f"{item.short_name} {one.where}")
    if not seen:
        return
    yield "the commit will reveal, in records and attached reports:"
    lines = [
        f"  {kind}: {text} ({places[0]}{f' and {len(places) - 1} more places' if len(places) > 1 else ''})"
        for (kind, text), places in sorted(seen.items())
    ]
    yield from lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        yield f"  and {len(lines) - MAX_LINES} more"


def _revealed(item: Incoming, names: MachineNames) -> Iterator[Revealed]:
    yield from in_record(item.record, names)
    measured = item.measurement
    attachments = measured.attachments if isinstance(measured, Measurement) else ()
    attached = {attachment.sha256: attachment.name for attachment in attachments}
    for path, data in item.attachments.items():
        yield from in_file(data, attached.get(PurePosixPath(path).name, path), names)
