"""Tests the share of the processors that other processes use: worked readings, and this machine under a known load."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from ledger.device.cpu_load import CpuTimes, cpu_times, load_average, others_percent, parse_stat

# Columns: user nice system idle iowait irq softirq steal guest guest_nice, in ticks of 10 ms.
STAT = """\
cpu  600 30 60 300 30 6 3 21 100 0
cpu0 100 10 20 100 10 2 1 7 50 0
cpu1 200 10 20 100 10 2 1 7 50 0
cpu2 300 10 20 100 10 2 1 7 0 0
intr 12345
"""


def parsed(text: str = STAT, processors: tuple[int, ...] = (0, 1)) -> CpuTimes | None:
    return parse_stat(text, processors, ticks_per_s=100, own_s=1.5)


def test_parse_stat_adds_the_processors_of_this_process_only():
    # cpu0: 140 busy of 250 ticks; cpu1: 240 of 350. Guest time is part of user time.
    assert parsed() == CpuTimes(all_s=6.0, busy_s=3.8, own_s=1.5)
    assert parsed(processors=(2,)) == CpuTimes(all_s=4.5, busy_s=3.4, own_s=1.5)


@pytest.mark.parametrize(
    "text", ["", "cpu 1 2 3", STAT.replace("cpu1 200", "cpu9 200"), STAT.replace("cpu0 100", "cpu0 x")]
)
def test_parse_stat_knows_nothing_of_a_list_that_is_not_whole(text: str):
    assert parsed(text) is None


def times(all_s: float, busy_s: float, own_s: float) -> CpuTimes:
    return CpuTimes(all_s, busy_s, own_s)


def test_others_percent_takes_away_what_this_process_used():
    start = times(100, 40, 10)
    assert others_percent(start, times(120, 55, 20)) == pytest.approx(25)  # 15 busy, 10 of them own, of 20
    assert others_percent(start, times(120, 45, 18)) == 0  # ticks are coarser than a process's own time
    assert others_percent(start, times(120, 90, 10)) == 100
    assert others_percent(start, start) is None
    assert others_percent(None, start) is None and others_percent(start, None) is None


@pytest.mark.skipif(cpu_times() is None, reason="this kernel does not list the time of its processors")
def test_another_process_is_seen_and_this_one_is_not():
    # The shares of a machine that others use as well: only their difference is known.
    quiet, loaded = [], []
    for shares, busy in ((quiet, False), (loaded, True), (quiet, False), (loaded, True)):
        command = [sys.executable, "-c", "while True: pass"]
        children = [subprocess.Popen(command) for _ in range(8)] if busy else []
        try:
            before, until = cpu_times(), time.monotonic() + 0.7
            while time.monotonic() < until:
                pass
            shares.append(others_percent(before, cpu_times()))
        finally:
            for child in children:
                child.kill()
                child.wait()
    assert None not in quiet + loaded
    assert max(loaded) > min(quiet) and max(loaded) > 25


def test_load_average_is_read():
    load = load_average()
    assert load is None or load >= 0
