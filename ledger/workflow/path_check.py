"""Compiles the kernels of forecasts and compares the compiler's instruction path with that of the roof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath

from ledger.callables.subject import is_callable
from ledger.errors import InputError, MachineError
from ledger.kernel import GPU_IMPLEMENTATIONS
from ledger.kernel_files import load_kernel
from ledger.measure.inspection import inspect
from ledger.workflow.seal import Draft


def check_paths(drafts: Sequence[Draft], root: FilePath | None) -> Iterator[str]:
    """Yield one line a distinct configuration: checked, warning or not checked, and why."""
    seen: set[tuple[object, ...]] = set()
    for draft in drafts:
        case, target = draft.forecast.case, draft.hardware.target
        configuration = (case.kernel, case.dtype, target, tuple(sorted(case.config.items())))
        if case.implementation in GPU_IMPLEMENTATIONS and configuration not in seen:
            seen.add(configuration)
            yield _checked(draft, root)


def _checked(draft: Draft, root: FilePath | None) -> str:
    case, roof = draft.forecast.case, draft.forecast.roof
    name = f"{case.kernel} {case.dtype} on {case.hardware}"
    if is_callable(case.kernel):
        return f"not checked: {name}: a callable compiles its kernels only when it runs"
    try:
        kernel = load_kernel(case.kernel, root, launch=True).kernel
        found = inspect(kernel, draft.hardware, shape=case.shape, dtype=case.dtype, config=case.config)
    except (MachineError, InputError) as error:
        return f"not checked: {name}: {error}"
    compiled = f"{name} compiles to {found.instructions.family}"
    if found.instructions.path == roof.path:
        return f"checked: {compiled}; the roof is that path's ({roof.path})"
    if roof.path == found.named_path and not found.wrong_roof:
        return f"checked: {compiled}; memory binds on that path as on the roof's ({roof.path})"
    path = found.instructions.path or "no arithmetic path"
    return f"warning: {compiled} ({path}), but the roof is of {roof.path}: the percent would be of the wrong roof"
