"""Names configurations of matrix products as the files of benchmarks/ do."""

from __future__ import annotations

from typing import Any


def config_name(config: dict[str, Any]) -> str:
    """Return a configuration as the files of benchmarks/ name it."""
    of = ("cluster_m", "cluster_n") if config["variant"] != "generic" else ("block_k", "num_warps")
    ends = "-{}x{}" if config["variant"] != "generic" else "-bk{}-w{}"
    name = "{block_m}x{block_n}@{variant}".format_map(config) + ends.format(*(config[key] for key in of))
    split = config["split_k"]
    # Which side of a tile its warps divide.
    warps = config["num_warps"] if config["variant"] == "split_k" else 0
    flags = {"swap_ab": config["swap_ab"], f"w{warps}": warps, f"k{split}": split > 1, "stream_k": config["stream_k"]}
    return "-".join([name, *(flag for flag, value in flags.items() if value), f"n{config['num_stages']}"])
