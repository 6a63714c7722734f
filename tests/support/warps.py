"""Runs a warp-specialised Gluon kernel on NumPy arrays: partitions take turns, asynchronous work finishes late.

Only what the kernels here use is offered. Tensors are NumPy arrays, layouts are ignored, scalars are Python's. Three
rules make faults of the protocol visible: a tile that is being loaded reads as NaN until someone waits for its
barrier; products and stores read shared memory when they are waited for, not when they are issued; and whichever
partition runs next is drawn from a seeded generator. A protocol in which every partition waits is reported as a
deadlock. Plain stores to global memory reach others late, those to different tensors in any order. What a run cannot
show: layouts, fences and barriers among the warps of one partition.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# A run that polls for ever ends here; the longest right one takes a fifth of it.
MOST_TURNS = 20_000


class Deadlock(AssertionError):
    """Every partition waits for something that nobody will do."""


class Tensor(np.ndarray):
    """Add what a Gluon tensor has and an array has not."""

    def to(self, dtype: Any, bitcast: bool = False) -> Tensor:
        return (np.ascontiguousarray(self).view(dtype) if bitcast else self.astype(dtype)).view(Tensor)


def tensor(values: Any) -> Tensor:
    return np.asarray(values).view(Tensor)


class Shared:
    """A piece of shared memory; views share its array."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> Any:
        return self.array.dtype.type

    def index(self, at: int) -> Shared:
        assert 0 <= at < self.array.shape[0], f"index {at} of {self.array.shape}"
        return Shared(self.array[at])

    def slice(self, start: int, length: int, dim: int = 0) -> Shared:
        return Shared(np.moveaxis(np.moveaxis(self.array, dim, 0)[start : start + length], 0, dim))

    def permute(self, order: Sequence[int]) -> Shared:
        return Shared(self.array.transpose(order))

    def reshape(self, shape: Sequence[int]) -> Shared:
        view = self.array.reshape(shape)
        assert np.shares_memory(view, self.array)
        return Shared(view)

    def load(self, layout: Any) -> Tensor:
        return tensor(self.array.copy())

    def store(self, value: Tensor) -> None:
        assert tuple(value.shape) == tuple(self.array.shape), f"store {value.shape} into {self.array.shape}"
        self.array[...] = value


class Barrier(Shared):
    """An mbarrier ring: `index` gives one of them."""

    def __init__(self, count: int) -> None:
        self.bars = [_Bar() for _ in range(count)]

    def index(self, at: int) -> Any:
        assert 0 <= at < len(self.bars)
        return self.bars[at]


class _Bar:
    def __init__(self) -> None:
        self.count = self.pending = 0
        self.phase = 0
        self.bytes = 0
        self.copies: list[tuple[int, Callable[[], None]]] = []

    def flip(self) -> None:
        assert self.pending >= 0, "more arrivals than the barrier counts"
        if self.pending == 0 and self.bytes == 0 and not self.copies:
            self.phase ^= 1
            self.pending = self.count


class Descriptor:
    """A tensor and the block that a bulk copy moves; outside the tensor is zero, and stays unwritten."""

    def __init__(self, array: np.ndarray, block: Sequence[int]) -> None:
        self.array, self.block_shape, self.layout = array, list(block), None
        self.dtype = array.dtype.type
        self.block_type = self
        self.nbytes = int(np.prod(block)) * array.dtype.itemsize

    def _ranges(self, at: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        sizes = [max(min(b, n - i), 0) for b, n, i in zip(self.block_shape, self.array.shape, at, strict=True)]
        assert all(i >= 0 for i in at)
        return tuple(slice(i, i + n) for i, n in zip(at, sizes, strict=True)), tuple(slice(0, n) for n in sizes)

    def read(self, at: Sequence[int]) -> np.ndarray:
        inside, block = self._ranges(at)
        tile = np.zeros(self.block_shape, self.array.dtype)
        tile[block] = self.array[inside]
        return tile

    def write(self, at: Sequence[int], tile: np.ndarray) -> None:
        inside, block = self._ranges(at)
        self.array[inside] = tile.reshape(self.block_shape)[block]


class Pointer:
    """A flat array and offsets into it."""

    def __init__(self, array: np.ndarray, at: Any = 0) -> None:
        self.array, self.at = array, at

    def __add__(self, other: Any) -> Pointer:
        return Pointer(self.array, self.at + other)

    @property
    def dtype(self) -> Any:
        class Element:
            element_ty = self.array.dtype.type

        return Element


class Pending:
    """A product in flight."""

    def __init__(self, compute: Callable[[], np.ndarray], shape: tuple[int, ...]) -> None:
        self.compute, self.value, self.shape = compute, None, shape

    def finish(self) -> Tensor:
        if self.value is None:
            self.value = tensor(self.compute())
        return self.value


class Machine:
    """Runs the partitions of all programs, one at a time in a drawn order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.turn = threading.Condition()
        self.running: int | None = None
        self.ready: dict[int, Callable[[], bool]] = {}
        self.failure: BaseException | None = None
        self.local = threading.local()
        self.threads: list[threading.Thread] = []
        self.turns = 0

    def run(self, jobs: Sequence[Callable[[], None]]) -> None:
        for job in jobs:
            self.start(job)
        with self.turn:
            self._next()
        # Partitions may start others until the last has ended.
        for thread in self.threads:
            thread.join()
        if self.failure:
            raise self.failure

    def start(self, job: Callable[[], None]) -> None:
        number = len(self.threads)
        self.ready[number] = lambda: True
        self.threads.append(threading.Thread(target=self._work, args=(number, job), daemon=True))
        self.threads[-1].start()

    def _work(self, number: int, job: Callable[[], None]) -> None:
        self.local.number = number
        self.local.products = []
        self.local.stores = []
        self.local.copies = []
        with self.turn:
            self.turn.wait_for(lambda: self.running == number or self.failure)
        try:
            if not self.failure:
                job()
                self.flush(list(self.local.stores))
        except BaseException as error:  # noqa: BLE001
            self.failure = self.failure or error
        with self.turn:
            del self.ready[number]
            self._next()

    def _next(self) -> None:
        self.turns += 1
        if self.turns > MOST_TURNS:
            self.failure = self.failure or Deadlock(f"no end after {MOST_TURNS} turns")
        able = [number for number, ready in self.ready.items() if ready()]
        if self.ready and not able and not self.failure:
            self.failure = Deadlock(f"{len(self.ready)} partitions wait for one another")
        self.running = self.random.choice(able) if able else None
        self.turn.notify_all()

    def until(self, ready: Callable[[], bool]) -> None:
        """Let others run; return once it is this partition's turn and ready() holds."""
        number = self.local.number
        if self.local.stores and self.random.random() < 0.3:
            array = self.random.choice(self.local.stores)[0]
            self.flush([next(store for store in self.local.stores if store[0] is array)])
        with self.turn:
            self.ready[number] = ready
            self._next()
            self.turn.wait_for(lambda: self.running == number or self.failure)
            if self.failure:
                raise SystemExit
            self.ready[number] = lambda: True

    def flush(self, stores: Sequence[Any]) -> None:
        """Let others see these stores."""
        for array, at, value in stores:
            array[at] = value
        self.local.stores = [store for store in self.local.stores if not any(store is done for done in stores)]


class _Barriers:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    @staticmethod
    def MBarrierLayout() -> str:
        return "mbarrier"

    @staticmethod
    def init(bar: Any, count: int) -> None:
        bar = bar if isinstance(bar, _Bar) else bar.index(0)
        bar.count = bar.pending = count

    def wait(self, bar: Any, phase: int, pred: bool = True) -> None:
        bar = bar if isinstance(bar, _Bar) else bar.index(0)
        if not pred:
            return

        def ready() -> bool:
            if bar.phase != phase:
                return True
            # The copies that this wait is for may finish now, in any order.
            self.machine.random.shuffle(bar.copies)
            while bar.copies:
                size, copy = bar.copies.pop()
                copy()
                bar.bytes -= size
            bar.flip()
            return bar.phase != phase

        self.machine.until(ready)

    def arrive(self, bar: Any, count: int = 1, pred: bool = True) -> None:
        bar = bar if isinstance(bar, _Bar) else bar.index(0)
        if pred:
            bar.pending -= count
            bar.flip()
            self.machine.until(lambda: True)

    def expect(self, bar: Any, size: int, pred: bool = True) -> None:
        bar = bar if isinstance(bar, _Bar) else bar.index(0)
        if pred:
            bar.bytes += size
            bar.pending -= 1


class _Copies:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def async_load(self, source: Descriptor, at: Sequence[int], bar: Any, target: Shared, pred: bool = True) -> None:
        if not pred:
            return
        bar = bar if isinstance(bar, _Bar) else bar.index(0)
        at = [int(i) for i in at]
        assert tuple(target.shape) == tuple(source.block_shape), f"{source.block_shape} into {target.shape}"
        target.array[...] = np.nan
        bar.copies.append((source.nbytes, lambda: target.store(tensor(source.read(at)))))

    def async_store(self, target: Descriptor, at: Sequence[int], source: Shared) -> None:
        assert tuple(source.shape) == tuple(target.block_shape)
        place = [int(i) for i in at]
        self.machine.local.copies.append(lambda: target.write(place, source.array.copy()))

    def store_wait(self, pendings: int) -> None:
        copies = self.machine.local.copies
        while len(copies) > pendings:
            copies.pop(0)()


class Hopper:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.mbarrier = _Barriers(machine)
        self.tma = _Copies(machine)

    @staticmethod
    def fence_async_shared() -> None:
        return None

    def warpgroup_mma(self, a: Any, b: Any, acc: Any, use_acc: bool = True, is_async: bool = False) -> Pending:
        def compute() -> np.ndarray:
            left = a.array if isinstance(a, Shared) else np.asarray(a)
            product = left.astype(np.float32) @ b.array.astype(np.float32)
            if not use_acc:
                return product
            return np.asarray(acc.finish() if isinstance(acc, Pending) else acc) + product

        assert is_async and a.shape[1] == b.shape[0], f"{a.shape} times {b.shape}"
        pending = Pending(compute, (a.shape[0], b.shape[1]))
        self.machine.local.products.append(pending)
        self.machine.until(lambda: True)
        return pending

    def warpgroup_mma_wait(self, outstanding: int, deps: Sequence[Any]) -> Any:
        self.machine.until(lambda: True)
        products = self.machine.local.products
        while len(products) > outstanding:
            products.pop(0).finish()
        given = []
        for dep in deps:
            assert not isinstance(dep, Pending) or dep.value is not None, "a product is used before it is waited for"
            given.append(dep.value if isinstance(dep, Pending) else dep)
        return given[0] if len(given) == 1 else tuple(given)


class Gluon:
    """Offer what `gluon.language` offers, on arrays."""

    float16, float32, int32, int64 = np.float16, np.float32, np.int32, np.int64
    static_range = range
    minimum, maximum = staticmethod(np.minimum), staticmethod(np.maximum)

    def __init__(self, machine: Machine, grid: tuple[int, ...]) -> None:
        self.machine, self.grid = machine, grid

    def __getattr__(self, name: str) -> Any:
        if name.endswith("Layout"):
            return _Plain()
        raise AttributeError(name)

    def program_id(self, axis: int) -> Tensor:
        return tensor(np.int64(self.machine.local.program[axis]))

    def num_programs(self, axis: int = 0) -> int:
        return self.grid[axis]

    @staticmethod
    def num_warps() -> int:
        return 4

    @staticmethod
    def cdiv(a: int, b: int) -> int:
        return -(-a // b)

    @staticmethod
    def allocate_shared_memory(dtype: Any, shape: Sequence[int], layout: Any) -> Shared:
        if layout == "mbarrier":
            return Barrier(int(np.prod(shape)))
        poison = np.nan if np.dtype(dtype).kind == "f" else 0x7BADBAD
        return Shared(np.full(shape, poison, dtype))

    @staticmethod
    def zeros(shape: Sequence[int], dtype: Any, layout: Any = None) -> Tensor:
        return tensor(np.zeros(shape, dtype))

    @staticmethod
    def full(shape: Sequence[int], value: Any, dtype: Any, layout: Any = None) -> Tensor:
        return tensor(np.full(shape, value, dtype))

    @staticmethod
    def arange(start: int, end: int, layout: Any = None) -> Tensor:
        return tensor(np.arange(start, end))

    @staticmethod
    def convert_layout(value: Tensor, layout: Any, assert_trivial: bool = False) -> Tensor:
        return value

    @staticmethod
    def where(condition: Any, value: Any, other: Any) -> Tensor:
        return tensor(np.where(condition, value, other))

    @staticmethod
    def max(value: Tensor, axis: int) -> Any:
        return np.max(value, axis=axis)

    @staticmethod
    def min(value: Tensor, axis: int) -> Any:
        return np.min(value, axis=axis)

    @staticmethod
    def sum(value: Tensor, axis: int) -> Any:
        return np.sum(value, axis=axis)

    @staticmethod
    def exp2(value: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.exp2(value)

    @staticmethod
    def reshape(value: Tensor, shape: Sequence[int]) -> Tensor:
        return value.reshape(shape)

    @staticmethod
    def permute(value: Tensor, order: Sequence[int]) -> Tensor:
        return value.transpose(order)

    def load(self, pointer: Pointer, mask: Any = True, other: Any = 0, volatile: bool = False, **_: Any) -> Any:
        if volatile:
            self.machine.until(lambda: True)
        self.machine.flush([store for store in self.machine.local.stores if store[0] is pointer.array])
        at, mask = np.broadcast_arrays(pointer.at, mask)
        values = np.where(mask, pointer.array[np.where(mask, at, 0)], other).astype(pointer.array.dtype)
        return tensor(values) if values.ndim else values[()]

    def store(self, pointer: Pointer, value: Any, mask: Any = True) -> None:
        self.machine.until(lambda: True)
        at, mask, value = np.broadcast_arrays(pointer.at, mask, value)
        self.machine.local.stores.append((pointer.array, at[mask].copy(), value[mask].copy()))

    def atomic_add(self, pointer: Pointer, value: int, sem: str = "acq_rel") -> int:
        self.machine.until(lambda: True)
        before = int(pointer.array[pointer.at])
        pointer.array[pointer.at] += value
        return before

    def warp_specialize(self, partitions: Sequence[tuple[Any, Any]], warps: Any, registers: Any) -> None:
        position = self.machine.local.program
        (function, given), *others = partitions
        for other in others:
            self.machine.start(_job(self.machine, position, *other))
        function(*given)


def run_specialised(module: Any, kernel: str, grid: tuple[int, ...], arguments: Sequence[Any], seed: int) -> None:
    """Run every program of a kernel of a module, all resident at once."""
    from triton.runtime.jit import JITFunction

    machine = Machine(seed)
    gl = Gluon(machine, grid)
    hopper = Hopper(machine)
    copies = {"async_load": hopper.tma.async_load, "async_store": hopper.tma.async_store}
    stands = {**copies, "gl": gl, "hopper": hopper, "tl": _Plain(), "grid": _Plain()}
    # Functions of other modules look up names there: each module is changed for the run.
    functions = [value for value in vars(module).values() if isinstance(value, JITFunction)]
    modules = {one.__name__: one for one in (module, *(sys.modules[value.fn.__module__] for value in functions))}
    kept = [(one, name, vars(one)[name]) for one in modules.values() for name in _replaced(one, stands, JITFunction)]
    plain = getattr(module, kernel).fn
    jobs = []
    try:
        for one, name, value in kept:
            setattr(one, name, stands.get(name) or value.fn)
        for program in np.ndindex(*reversed(grid)):
            position = tuple(reversed(program)) + (0,) * 3
            jobs.append(_job(machine, position, plain, arguments))
        machine.run(jobs)
    finally:
        for one, name, value in kept:
            setattr(one, name, value)


def _replaced(module: Any, stands: Mapping[str, Any], function: type[Any]) -> list[str]:
    """Return the names of a module that stand for something else during a run."""
    return [name for name, value in vars(module).items() if name in stands or isinstance(value, function)]


class _Plain:
    """Stands in for layouts, fences and barriers, which arrays do not need."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None


def _job(machine: Machine, position: tuple[int, ...], function: Any, given: Any) -> Callable[[], None]:
    def job() -> None:
        machine.local.program = position
        function(*given)

    return job
