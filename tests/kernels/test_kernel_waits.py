"""Who waits for whom in rmsnorm_matmul's groups in turn, step by step: no accepted configuration waits for ever."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from ledger.errors import InputError
from ledger.kernel_files import load_kernel

KERNEL = load_kernel("rmsnorm_matmul").kernel
FILE: Any = sys.modules[KERNEL.check_config.__module__]


class Rings(NamedTuple):
    """Hold stages of weights and of x (0: together), groups in turn, if they scale ahead, how many warps square."""

    weights: int
    x: int
    groups: int
    ahead: bool
    squarers: int


def rings(config: dict[str, int]) -> Rings:
    return Rings(
        config["num_stages"], config["x_stages"], FILE._turns_groups(config), FILE._turns_ahead(config),
        FILE._turns_own_squarers(config),
    )  # fmt: skip


class Program:
    """One program's loaders, groups and squarers, each as far as the others let it go.

    What loads has a count of steps; what computes yields the operand and the step that it waits for, and notes what
    it gives back when it is resumed. Everything that does not wait takes no time.
    """

    def __init__(self, of: Rings, steps: int) -> None:
        self.of, self.steps, self.together = of, steps, of.x == 0
        self.stages = {"w": of.weights, "x": of.x or of.weights}
        self.loaded = {"w": 0, "x": 0}
        self.given: dict[str, set[int]] = {"w": set(), "x": set()}
        self.squared: set[int] = set()
        self.workers = [self.group(g) for g in range(of.groups)] + [self.squarer(s) for s in range(of.squarers)]

    def group(self, first: int) -> Iterator[tuple[str, int]]:
        each = self.of.groups
        if not self.of.ahead:
            for step in range(first, self.steps, each):
                yield "w", step
                yield "x", step
                self.given["w"].add(step)
                self.given["x"].add(step)
            return
        if first < self.steps:
            yield "w", first
        for step in range(first, self.steps, each):
            yield "x", step
            if not self.together:
                self.given["w"].add(step)
            if step >= each:
                self.given["w"].add(step - each)
                self.given["x"].add(step - each)
            if step + each < self.steps:
                yield "w", step + each

    def squarer(self, first: int) -> Iterator[tuple[str, int]]:
        for step in range(first, self.steps, self.of.squarers):
            yield "x", step
            self.squared.add(step)

    def free(self, operand: str, step: int) -> bool:
        also_squared = self.of.squarers > 0 and (operand == "x" or self.together)
        return step in self.given[operand] and (not also_squared or step in self.squared)

    def there(self, operand: str, step: int) -> bool:
        return step < (min(self.loaded.values()) if self.together else self.loaded[operand])

    def ends(self) -> bool:
        waits = {worker: next(worker, None) for worker in self.workers}
        moved = True
        while moved:
            moved = False
            for operand, stages in self.stages.items():
                while self.loaded[operand] < self.steps and (
                    self.loaded[operand] < stages or self.free(operand, self.loaded[operand] - stages)
                ):
                    self.loaded[operand] += 1
                    moved = True
            for worker in waits:
                while (wait := waits[worker]) is not None and self.there(*wait):
                    waits[worker] = next(worker, None)
                    moved = True
        return not any(waits.values())


def accepted() -> Iterator[dict[str, int]]:
    rows = (8, 16, 24, 32, 40, 64, 128, 136, 192, 200, 224, 256)
    for block_b, block_o, parts, warps in itertools.product(rows, (64, 128), (1, 2), (8, 16)):
        for weights, x in itertools.product(range(1, 25), range(25)):
            config = {
                "block_b": block_b, "block_o": block_o, "block_k": 64, "split_k": parts, "num_warps": warps,
                "num_stages": weights, "tma": 1, "pipeline": 3, "x_stages": x, "scalers": 0, "pdl": 1,
            }  # fmt: skip
            try:
                KERNEL.check_config(config, {"B": block_b, "H": 64 * 40 * parts, "O": block_o}, "fp16", "sm_90")
            except InputError:
                continue
            yield config


def test_no_accepted_configuration_waits_for_itself() -> None:
    different = {rings(config): config for config in accepted()}
    assert len(different) > 500
    for of, config in different.items():
        assert all(Program(of, steps).ends() for steps in (1, 2, 3, 5, 8, 16, 17, 33, 40)), config


def test_fewer_stages_of_x_than_two_a_group_wait_for_ever() -> None:
    """What check_config refuses: a stage is given back beside products that need the next stage."""
    assert not Program(Rings(8, 1, 1, ahead=True, squarers=0), 2).ends()
    assert not Program(Rings(12, 2, 2, ahead=True, squarers=0), 3).ends()
    assert Program(Rings(12, 2, 2, ahead=True, squarers=0), 2).ends()
    assert Program(Rings(12, 4, 2, ahead=True, squarers=0), 40).ends()
