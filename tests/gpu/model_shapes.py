"""Time rmsnorm_matmul beside library baselines on cells of benchmarks/model_shapes.yaml, weights shared by batch sizes.

Usage: python tests/gpu/model_shapes.py --half unseen --draw 96 --baselines torch_matmul,torch_compile -o FILE
              --budget SECONDS --document benchmarks/model_shapes-h100.json
       python tests/gpu/model_shapes.py --summary FILE

Rows are appended to FILE, one JSON line each; a cell that FILE has is skipped, so that a run can be resumed. Each of
our results is compared with float32 before it is timed. Contestants are interleaved round by round in the chain and
back to back. With --pause-ms the device idles before each round, so that it runs at its boost clock. At the end, also
that of the budget, it prints the ratios and writes the document. torch_compile stands for both of its modes, the
columns torch_compile_default and torch_compile_max_autotune; one of them may be named alone.
--others N also times N other configurations, the cheapest predicted of each variant first.
--compile-ahead JOBS only compiles, in parallel processes, what the same command times later.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import yaml

from ledger.analysis.model_shapes import TIMES_SCHEMA, Cell, cells, drawn
from ledger.device.facts import cuda_facts, target_of
from ledger.kernels.common.targets import SMS
from ledger.kernels.rmsnorm_matmul.search import Config, normed_configs, predicted_s, staged, tiles

ROOT = Path(__file__).parents[2]
SHAPES = ROOT / "benchmarks" / "model_shapes.yaml"
EPS = 1e-6
COMPILED = ("torch_compile_default", "torch_compile_max_autotune")
Key = tuple[int, int, int, str]


def key_of(cell: Cell) -> Key:
    """Return a cell's sort key: cells of one weight matrix lie together."""
    shape, dtype = cell
    return shape["H"], shape["O"], shape["B"], dtype


def chosen(half: str, draw: int | None, seed: str) -> list[Cell]:
    """Return the cells of a half, or the first `draw` of them by SHA-256."""
    population = cells(yaml.safe_load(SHAPES.read_text()), half, what=SHAPES.name)  # type: ignore[arg-type]
    return sorted(population, key=key_of) if draw is None else list(drawn(population, draw, seed=seed))


def others(cell: Cell, own: Config, count: int) -> list[Config]:
    """Return other configurations of a cell: the cheapest predicted of each variant, then the next, all unlike."""
    found = [config for tile in tiles(cell[0]) if (config := staged(tile, *cell)) is not None]
    found += itertools.islice(normed_configs(*cell, SMS["sm_90"]), count + 1)
    kinds = {_kind(own)}
    variants: list[Config] = []
    rest: list[Config] = []
    for config in sorted(found, key=lambda config: predicted_s(config, *cell)):
        if _kind(config) not in kinds:
            kinds.add(_kind(config))
            (rest if config["variant"] in {one["variant"] for one in (own, *variants)} else variants).append(config)
    return [*variants, *rest][:count]


def _kind(config: Config) -> tuple[Any, ...]:
    keys = ("variant", "block_b", "block_o", "split_k", "cluster_m", "cluster_n", "stream_k")
    return tuple(config[key] for key in keys)


class Operands:
    """Hold the weights and gains of one matrix and dtype, and rows of x, each in as many sets as exceed the caches."""

    def __init__(self, inner: int, columns: int, dtype: str, most: int, l2_bytes: int) -> None:
        """Fill `most` rows of x, gains and weights with normal deviates."""
        import torch

        kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
        generator = torch.Generator(device="cuda").manual_seed(inner * 1_000_003 + columns)

        def random(*dims: int) -> Any:
            return torch.randn(dims, generator=generator, device="cuda", dtype=kind)

        one = 2 * (inner * columns + most * (inner + columns))
        self.count = min(40, max(2, math.ceil(max(5 * l2_bytes, 268_435_456) / one)))
        self.x = [random(most, inner) for _ in range(self.count)]
        self.gain = [random(inner) * 0.1 + 1 for _ in range(self.count)]
        self.weight = [random(inner, columns) / inner**0.5 for _ in range(self.count)]
        self.out = [random(most, columns) for _ in range(self.count)]

    def sets(self, rows: int) -> Iterator[tuple[dict[str, Any], Any]]:
        """Yield inputs and output of each set, for the first rows of x."""
        for x, gain, weight, out in zip(self.x, self.gain, self.weight, self.out, strict=True):
            yield {"x": x[:rows], "gain": gain, "weight": weight}, out[:rows]


def wrong_by(out: Any, given: dict[str, Any]) -> float:
    """Return the largest error of a result over twice the kernel's rounding of a sum, against float32."""
    import torch

    wide = given["x"].float()
    normed = wide * torch.rsqrt(wide.square().mean(dim=1, keepdim=True) + EPS) * given["gain"].float()
    exact = normed @ given["weight"].float()
    unit = 2.0**-11 if out.dtype == torch.float16 else 2.0**-8
    bound = 4 * unit * (exact.abs() + exact.std())
    return float(((out.float() - exact).abs() / bound).max())


def launches_of(name: str, kernel: Any, cell: Cell, operands: Operands, config: Any) -> list[Any]:
    """Return the launches of one contestant, one a set."""
    prepare = kernel.baselines[name] if name in kernel.baselines else kernel.implementations["triton"]
    return [prepare(given, out, config) for given, out in operands.sets(cell[0]["B"])]


def rounds_of(launches: Sequence[Any], context: str) -> Any:
    """Return the rounds of a contestant in a context."""
    from ledger.measure.cuda_graphs import GraphRounds
    from ledger.measure.launch_contexts import ChainRounds, between_launch

    if context == "chain":
        return ChainRounds(launches, between_launch(), watch=False)
    return GraphRounds(launches, watch=False)


def row_of(kernel: Any, cell: Cell, operands: Operands, names: Sequence[str], given: argparse.Namespace) -> Any:
    """Return the row of one cell."""
    import torch

    shape, dtype = cell
    config = kernel.config(shape, dtype, target_of(torch.cuda.current_device()))
    configs = {f"other_{at}": one for at, one in enumerate(others(cell, config, given.others))}
    made, missing = {}, {}
    for name in ("ours", *configs, *names):
        try:
            made[name] = launches_of(name, kernel, cell, operands, configs.get(name, config))
        except Exception as error:  # noqa: BLE001 (the row says which library failed)
            missing[name] = str(error)[-300:]
    first, out = next(iter(operands.sets(shape["B"])))
    worst = {}
    for name in ("ours", *configs):
        if name in made:
            out.fill_(float("nan"))
            made[name][0]()
            worst[name] = round(wrong_by(out, first), 3)
            if name != "ours" and not worst[name] < 1:
                missing[name] = f"error is {worst[name]} times the bound"
                del made[name]
    row: dict[str, Any] = {"shape": shape, "dtype": dtype, "config": config, "worst": worst["ours"]}
    if configs:
        row["others"] = {name: configs[name] for name in configs if name in made}
    contexts = given.contexts.split(",")
    rounds = {(context, name): rounds_of(made[name], context) for context in contexts for name in made}
    samples: dict[tuple[str, str], list[int]] = {one: [] for one in rounds}
    for one in rounds.values():
        one.take(1)
    for _ in range(given.rounds):
        for one, taken in samples.items():
            if given.pause_ms:
                torch.cuda.synchronize()
                time.sleep(given.pause_ms / 1e3)
            taken += rounds[one].take(1)
    row["sm_clock_mhz"] = rounds[contexts[0], "ours"].state().sm_clock_mhz
    row["contexts_us"] = {
        context: {name: round(statistics.median(samples[context, name]) / 1e6, 4) for name in made}
        for context in contexts
    }
    return row | ({"missing": missing} if missing else {})


def compiled_ahead(found: Sequence[Cell], names: Sequence[str], job: int, jobs: int) -> None:
    """Compile ours and the baselines of every `jobs`-th cell."""
    import torch

    from ledger.kernel_files import load_kernel

    uncached(names)
    kernel, target = load_kernel("rmsnorm_matmul", ROOT, launch=True).kernel, target_of(torch.cuda.current_device())
    for cell in found[job::jobs]:
        operands = Operands(cell[0]["H"], cell[0]["O"], cell[1], cell[0]["B"], 0)
        config = kernel.config(cell[0], cell[1], target)
        for name in ("ours", *names):
            try:
                launches_of(name, kernel, cell, operands, config)[0]()
            except Exception as error:  # noqa: BLE001
                print(f"{key_of(cell)} {name}: {error}"[:300], file=sys.stderr)


def uncached(names: Sequence[str]) -> None:
    """Let torch.compile tune anew; code is kept, and without a choice of products so are whole functions."""
    import torch

    torch._inductor.config.fx_graph_cache = "torch_compile_max_autotune" not in names
    torch._inductor.config.autotune_local_cache = False
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", "/tmp/inductor")


def measured(found: Sequence[Cell], names: Sequence[str], given: argparse.Namespace) -> None:
    """Time the cells that the file lacks, and append each row as it comes."""
    import torch

    from ledger.kernel_files import load_kernel

    kernel = load_kernel("rmsnorm_matmul", ROOT, launch=True).kernel
    done = {key_of((row["shape"], row["dtype"])) for row in rows(given.output)}
    left = [cell for cell in found if key_of(cell) not in done]
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    started = time.monotonic()
    with given.output.open("a") as file:
        for (inner, columns), group in itertools.groupby(left, key=lambda cell: key_of(cell)[:2]):
            of_matrix = sorted(group, key=key_of)
            for dtype in sorted({dtype for _, dtype in of_matrix}):
                few = [cell for cell in of_matrix if cell[1] == dtype]
                operands = Operands(inner, columns, dtype, max(cell[0]["B"] for cell in few), l2_bytes)
                for cell in few:
                    if time.monotonic() - started > given.budget:
                        print("out of time; run again to go on", file=sys.stderr)
                        return
                    file.write(json.dumps(row_of(kernel, cell, operands, names, given)) + "\n")
                    file.flush()
                del operands
                torch.cuda.empty_cache()


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, none where it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return, by context and baseline, the ratios of its time to ours: above 1 ours is faster."""
    result: dict[str, Any] = {"cells": len(found), "worst error over bound": max(row["worst"] for row in found)}
    regrets = sorted(
        taken["ours"] / min(taken[name] for name in ("ours", *row["others"]))
        for row in found
        if "others" in row and (taken := row.get("candidates_us", row["contexts_us"]["chain"]))
    )
    if regrets:
        within = {limit: round(sum(one <= limit for one in regrets) / len(regrets), 3) for limit in (1.05, 1.1)}
        result["regret in the chain"] = {"cells": len(regrets), "within": within, "worst": round(regrets[-1], 3)}
    for context in found[0]["contexts_us"]:
        for name in ("torch_matmul", "torch_compile", "torch_eager"):
            for few, label in ((True, "B <= 64"), (False, "B > 64")):
                ratios = sorted(
                    min(taken) / row["contexts_us"][context]["ours"]
                    for row in found
                    if (row["shape"]["B"] <= 64) is few
                    and (taken := [us for one, us in row["contexts_us"][context].items() if one.startswith(name)])
                )
                if ratios:
                    result[f"{context}, {name}, {label}"] = {
                        "cells": len(ratios),
                        "geomean": round(math.exp(statistics.fmean(map(math.log, ratios))), 3),
                        "least": round(ratios[0], 3),
                        "ahead": round(sum(one > 1 for one in ratios) / len(ratios), 3),
                        "at least": {
                            limit: round(sum(one >= limit for one in ratios) / len(ratios), 3)
                            for limit in (0.95, 0.97, 1.0)
                        },
                    }
    return result


def document(found: Sequence[dict[str, Any]], device: str, conditions: dict[str, str]) -> dict[str, Any]:
    """Return rows as benchmarks/model_shapes-*.json has them; a column that was not timed is null."""

    def row_in(one: dict[str, Any]) -> dict[str, Any]:
        chain = one["contexts_us"]["chain"]
        compiled_us = [chain[name] for name in COMPILED if name in chain]
        return {
            "kernel": "rmsnorm_matmul", "shape": one["shape"], "dtype": one["dtype"], "ours_us": chain["ours"],
            "torch_compile_us": min(compiled_us, default=None), "torch_matmul_us": chain.get("torch_matmul"),
            "contexts_us": one["contexts_us"], "sm_clock_mhz": one["sm_clock_mhz"], "worst": one["worst"],
            "config": one["config"], **{key: one[key] for key in ("others", "candidates_us") if key in one},
        }  # fmt: skip

    made = [row_in(one) for one in sorted(found, key=lambda one: key_of((one["shape"], one["dtype"])))]
    return {"schema": TIMES_SCHEMA, "device": device, "conditions": conditions, "rows": made}


def conditions_of(given: argparse.Namespace) -> dict[str, str]:
    """Return the conditions of a run by name."""
    facts, drawing = cuda_facts(), f"{given.draw} cells" if given.draw else "all cells"
    return {
        "cells": f"{drawing} of the {given.half} half by SHA-256 (seed {given.seed or 'empty'})",
        "clocks": f"{given.pause_ms:g} ms of pause before each round" if given.pause_ms else "as under load, no pause",
        "context": given.contexts,
        "date": date.today().isoformat(),
        "driver": str(facts.driver),
        "statistic": f"median of {given.rounds} rounds, contestants interleaved, cold inputs; chain: an elementwise "
        "kernel between calls, whose time is subtracted",
        "torch": facts.software["torch"],
        "triton": facts.software["triton"],
    }


def document_text(made: dict[str, Any]) -> str:
    """Return a document as JSON, one line a row."""
    head = json.dumps({key: value for key, value in made.items() if key != "rows"}, indent=1)
    lines = ",\n".join("  " + json.dumps(row) for row in made["rows"])
    return f'{head[:-2]},\n "rows": [\n{lines}\n ]\n}}\n'


def main() -> None:
    """Compile, time or summarise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("fit", "unseen"), default="unseen")
    parser.add_argument("--draw", type=int)
    parser.add_argument("--seed", default="")
    parser.add_argument("--baselines", default="torch_matmul", help="of: torch_matmul, torch_eager, torch_compile")
    parser.add_argument("--contexts", default="chain,back-to-back")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--pause-ms", type=float, default=0.0)
    parser.add_argument("--budget", type=float, default=math.inf, metavar="SECONDS", help="stop after this time")
    parser.add_argument("--others", type=int, default=0, metavar="N")
    parser.add_argument("--compile-ahead", type=int, metavar="JOBS")
    parser.add_argument("--summary", type=Path)
    parser.add_argument("--document", type=Path, help="benchmarks/model_shapes-CHIP.json")
    parser.add_argument("-o", "--output", type=Path, help="rows, one a line")
    given = parser.parse_args()
    if given.summary is not None:
        print(json.dumps(summary(rows(given.summary)), indent=1))
        return
    if given.output is None:
        parser.error("-o is missing; expected a file of rows, or --summary FILE")
    found = chosen(given.half, given.draw, given.seed)
    names = [one for name in given.baselines.split(",") for one in (COMPILED if name == "torch_compile" else (name,))]
    uncached(names)
    if given.compile_ahead:
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        jobs = [
            context.Process(target=compiled_ahead, args=(found, names, job, given.compile_ahead))
            for job in range(given.compile_ahead)
        ]
        for process in jobs:
            process.start()
        for process in jobs:
            process.join()
        return
    measured(found, names, given)
    timed = rows(given.output)
    if timed:
        print(json.dumps(summary(timed), indent=1))
        if given.document is not None:
            made = document(timed, cuda_facts().name, conditions_of(given))
            given.document.write_text(document_text(made))


if __name__ == "__main__":
    main()
