"""Models the waits of rmsnorm_matmul's ping-pong warpgroups step by step: no accepted configuration deadlocks."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from loaded_kernels import load_kernel

from ledger.errors import InputError

KERNEL = load_kernel("rmsnorm_matmul").kernel
PING_PONG: Any = vars(sys.modules[KERNEL.check_config.__module__])["ping_pong"]


class Pipeline(NamedTuple):
    """Hold stages of the weights and of x (0: shared), alternating groups, if they prefetch weights, squaring warps."""

    weights: int
    x: int
    groups: int
    prefetch: bool
    square_warps: int


def pipeline(config: dict[str, Any]) -> Pipeline:
    return Pipeline(
        config["num_stages"], config["x_stages"], PING_PONG.groups(config), PING_PONG.prefetches_weights(config),
        PING_PONG.local_square_warps(config),
    )  # fmt: skip


class Cta:
    """One CTA's loaders, groups and squaring warps, each as far as the others let it go.

    A loader has a count of steps; what computes yields the operand and the step that it waits for, and notes what it
    releases when it is resumed. Everything that does not wait takes no time.
    """

    def __init__(self, of: Pipeline, steps: int) -> None:
        self.of, self.steps, self.shared = of, steps, of.x == 0
        self.stages = {"w": of.weights, "x": of.x or of.weights}
        self.loaded = {"w": 0, "x": 0}
        self.released: dict[str, set[int]] = {"w": set(), "x": set()}
        self.squared: set[int] = set()
        self.workers = [self.group(g) for g in range(of.groups)] + [self.square_warp(s) for s in range(of.square_warps)]

    def group(self, first: int) -> Iterator[tuple[str, int]]:
        each = self.of.groups
        if not self.of.prefetch:
            for step in range(first, self.steps, each):
                yield "w", step
                yield "x", step
                self.released["w"].add(step)
                self.released["x"].add(step)
            return
        if first < self.steps:
            yield "w", first
        for step in range(first, self.steps, each):
            yield "x", step
            if not self.shared:
                self.released["w"].add(step)
            if step >= each:
                self.released["w"].add(step - each)
                self.released["x"].add(step - each)
            if step + each < self.steps:
                yield "w", step + each

    def square_warp(self, first: int) -> Iterator[tuple[str, int]]:
        for step in range(first, self.steps, self.of.square_warps):
            yield "x", step
            self.squared.add(step)

    def free(self, operand: str, step: int) -> bool:
        also_squared = self.of.square_warps > 0 and (operand == "x" or self.shared)
        return step in self.released[operand] and (not also_squared or step in self.squared)

    def loaded_to(self, operand: str, step: int) -> bool:
        return step < (min(self.loaded.values()) if self.shared else self.loaded[operand])

    def finishes(self) -> bool:
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
                while (wait := waits[worker]) is not None and self.loaded_to(*wait):
                    waits[worker] = next(worker, None)
                    moved = True
        return not any(waits.values())


def accepted() -> Iterator[dict[str, Any]]:
    rows = (8, 16, 24, 32, 40, 64, 128, 136, 192, 200, 224, 256)
    for block_b, block_o, parts, warps in itertools.product(rows, (64, 128), (1, 2), (8, 16)):
        for weights, x in itertools.product(range(1, 25), range(25)):
            config = {
                "block_b": block_b, "block_o": block_o, "block_k": 64, "split_k": parts, "num_warps": warps,
                "num_stages": weights, "tma": 1, "variant": "cuda_ping_pong", "cluster_m": 1, "x_stages": x,
                "scaling_warpgroups": 0, "pdl": 1, "cluster_n": 1, "swap_ab": 0, "stream_k": 0,
            }  # fmt: skip
            try:
                KERNEL.check_config(config, {"B": block_b, "H": 64 * 40 * parts, "O": block_o}, "fp16", "sm_90")
            except InputError:
                continue
            yield config


def test_no_accepted_configuration_deadlocks() -> None:
    different = {pipeline(config): config for config in accepted()}
    assert len(different) > 500
    for of, config in different.items():
        assert all(Cta(of, steps).finishes() for steps in (1, 2, 3, 5, 8, 16, 17, 33, 40)), config


def test_fewer_stages_of_x_than_two_a_group_deadlock() -> None:
    """What check_config refuses: a stage is released after wgmma was issued that needs the next stage."""
    assert not Cta(Pipeline(8, 1, 1, prefetch=True, square_warps=0), 2).finishes()
    assert not Cta(Pipeline(12, 2, 2, prefetch=True, square_warps=0), 3).finishes()
    assert Cta(Pipeline(12, 2, 2, prefetch=True, square_warps=0), 2).finishes()
    assert Cta(Pipeline(12, 4, 2, prefetch=True, square_warps=0), 40).finishes()
