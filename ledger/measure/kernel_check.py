"""Checks a kernel file: what it lacks, its work model, its element, and its result over odd shapes.

A Triton kernel runs on the GPU, or in Triton's interpreter where there is none. Imports torch, only when called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ledger.analysis.formatting import shape_text
from ledger.analysis.kernel_check import Budget, Finding, file_findings, refusal, trial_shapes
from ledger.errors import LedgerError, explained
from ledger.kernel import CPU_IMPLEMENTATION, GPU_IMPLEMENTATIONS, Kernel
from ledger.kernel_files import KernelFile
from ledger.measure.interpreter import interpreted
from ledger.measure.kernel_trials import Trial, element_problem, problem_of, tolerance_problem
from ledger.measure.work_checks import bytes_problem, flops_problem
from ledger.operations import Shape
from ledger.records import Dtype

ON_DEVICE = Budget(elements=1 << 21, flops=1 << 28, shapes=24)
INTERPRETED = Budget(elements=1 << 16, flops=1 << 22, shapes=10)
# Targets whose launch rules use neither TMA nor early starts, which the interpreter lacks; the second has fp8.
_INTERPRETED_TARGETS = ("sm_80", "sm_89")
# Its arithmetic in bf16 rounds differently from a GPU's.
_NOT_INTERPRETED = ("bf16",)


def check_kernel(file: KernelFile, docstring: str | None, *, root: Path | None, gpu: str | None) -> Iterator[Finding]:
    """Yield the findings about a kernel, the cheapest first.

    gpu: the target of this machine's GPU, None without one. Raises: MachineError without torch.
    """
    try:
        yield from _checks(file, docstring, root=root, gpu=gpu)
    except LedgerError:
        raise
    # The file's own functions may raise any error, SystemExit included.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        yield Finding("functions", "failed", f"a function of the file raised {explained(error, 400)}")


def _checks(file: KernelFile, docstring: str | None, *, root: Path | None, gpu: str | None) -> Iterator[Finding]:
    kernel = file.kernel
    found = list(file_findings(kernel, docstring))
    yield from found
    unusable = [one.check for one in found if one.status == "failed" and one.check in ("cases", "tolerances")]
    if unusable:
        yield Finding("result", "skipped", f"not tried before these are right: {', '.join(unusable)}")
        return
    shapes, dtype = trial_shapes(kernel, ON_DEVICE), kernel.dtypes[0]
    if not shapes:
        yield Finding("result", "failed", "no shape is small enough or offered; expected a kernel that can be tried")
        return
    yield _over("work: operations", shapes, lambda shape: flops_problem(kernel, shape, dtype))
    yield _over("work: bytes", shapes, lambda shape: _of_dtypes(bytes_problem, kernel, shape))
    small = trial_shapes(kernel, INTERPRETED)
    yield _over("tolerances: size", small, lambda shape: _of_dtypes(tolerance_problem, kernel, shape))
    yield _over("element", small, lambda shape: element_problem(kernel, shape, dtype))
    if CPU_IMPLEMENTATION in kernel.implementations:
        yield from _tried(kernel, CPU_IMPLEMENTATION, shapes, device="cpu", targets=())
    for name in kernel.implementations:
        if name in GPU_IMPLEMENTATIONS:
            yield from _on_gpu(kernel, name, shapes, small, root=root, gpu=gpu)


def _on_gpu(
    kernel: Kernel, name: str, shapes: Sequence[Shape], small: Sequence[Shape], *, root: Path | None, gpu: str | None
) -> Iterator[Finding]:
    """Yield the findings about an implementation for a GPU."""
    if gpu is not None:
        yield from _tried(kernel, name, shapes, device="cuda", targets=(gpu,))
    elif name == "triton":
        yield from _interpreted(kernel, small, root)
    else:
        yield Finding(f"result: {name}", "skipped", "needs a GPU; only Triton has an interpreter")


def _of_dtypes(check: Callable[[Kernel, Shape, Dtype], str | None], kernel: Kernel, shape: Shape) -> str | None:
    return next(filter(None, (check(kernel, shape, dtype) for dtype in kernel.dtypes)), None)


def _over(check: str, shapes: Sequence[Shape], problem: Callable[[Shape], str | None]) -> Finding:
    """Return the first problem of a check over shapes; a kernel file may raise any error."""
    for shape in shapes:
        try:
            said = problem(shape)
        except LedgerError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001
            said = f"at {shape_text(shape)}: {explained(error, 400)}"
        if said is not None:
            return Finding(check, "failed", said)
    return Finding(check, "passed", f"{len(shapes)} shapes")


def _trials(
    kernel: Kernel, name: str, shapes: Sequence[Shape], dtype: Dtype, targets: Sequence[str]
) -> Iterator[Trial]:
    """Yield the trials of a dtype at the shapes that the kernel offers, as on the first target that has them.

    Without targets the implementation is one for a CPU, which has no configuration.
    """
    for shape in shapes:
        if not targets:
            yield Trial(name, {}, shape, dtype)
        for target in targets:
            if refusal(kernel, shape, dtype, [target]) is None:
                yield Trial(name, kernel.config(shape, dtype, target), shape, dtype)
                break


def _tried(
    kernel: Kernel, name: str, shapes: Sequence[Shape], *, device: str, targets: Sequence[str]
) -> Iterator[Finding]:
    """Yield the result of an implementation in each dtype, in this process."""
    for dtype in kernel.dtypes:
        trials = {str(trial.shape): trial for trial in _trials(kernel, name, shapes, dtype, targets)}
        found = _over("", [one.shape for one in trials.values()], _judge(kernel, trials, device))
        yield _result(f"result: {name} {dtype}", found, len(trials))


def _judge(kernel: Kernel, trials: Mapping[str, Trial], device: str) -> Callable[[Shape], str | None]:
    def judge(shape: Shape) -> str | None:
        said = problem_of(kernel, trials[str(shape)], device)
        return None if said is None else f"at {shape_text(shape)}: {said}"

    return judge


def _result(check: str, found: Finding, tried: int) -> Finding:
    if not tried:
        return Finding(check, "skipped", "offered at no shape here")
    return Finding(check, found.status, found.detail)


def _interpreted(kernel: Kernel, shapes: Sequence[Shape], root: Path | None) -> Iterator[Finding]:
    """Yield the result of the Triton implementation in each dtype, in Triton's interpreter."""
    by_dtype = {
        dtype: list(_trials(kernel, "triton", shapes, dtype, _INTERPRETED_TARGETS))
        for dtype in kernel.dtypes
        if dtype not in _NOT_INTERPRETED
    }
    problems = iter(interpreted(kernel.name, root, [trial for trials in by_dtype.values() for trial in trials]))
    for dtype in kernel.dtypes:
        check = f"result: triton {dtype}, interpreted"
        if dtype in _NOT_INTERPRETED:
            yield Finding(check, "skipped", f"the interpreter's {dtype} arithmetic is not a GPU's")
            continue
        said = [(trial, next(problems)) for trial in by_dtype[dtype]]
        wrong = [f"at {shape_text(trial.shape)}: {problem}" for trial, problem in said if problem is not None]
        found = Finding("", "failed", wrong[0]) if wrong else Finding("", "passed", f"{len(said)} shapes")
        yield _result(check, found, len(said))
