"""Checks the layers: a module imports only from those listed before it, and torch only where devices are."""

import ast
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(path for path in (ROOT / "ledger").rglob("*.py") if path.parent.name != "kernels")
KERNELS = sorted((ROOT / "kernels").rglob("*.py"))

# From the ground up: a folder with its modules, or "" for modules of ledger/ itself.
LAYERS = (
    ("", "budgets errors releases child_environment suggestions"),
    ("records", "base hardware case prediction reveal draw measurement ratio void source forecaster order verdict"),
    ("", "roofline cost_model record_parser invalid_values canonical philox_inputs"),
    ("operations", "contract row_wise products attention registry"),
    ("", "launches"),
    ("sources", "platform scan unlisted distributions closure collector rebuild loader same_code"),
    ("", "kernel kernel_folder kernel_files record_files"),
    ("callables", "argument_list recorded_arguments subject calls flop_counter counted_work subject_files"),
    (
        "problems",
        """
        documents axes adapters safetensors cells entry_points subjects static_inputs kernelbench problem_set
        exported_tensors exported
        """,
    ),
    (
        "analysis",
        """
        counters metrics formatting revealing work_model occupancy isa amdgcn rocprof_counters metric_readings protocols
        interventions sight_names sight book sight_notes refusals campaign stability steady_timing regime regime_v2
        causes regime_probabilities achieved_share gap correctness_bounds stream_timing consistency reconcile repeats
        machines cpu_noise above_roof clock_state results report_rows row_choice
        track_record resampling hiding draws score ranking seal_lines forecast_changes cell_history ledger_diff
        bench_regression paired_ratio claims estimate drill hardware_quiz practice
        chrome_trace kernel_scopes inside_trace tuning kernel_check model_shapes shape_grid
        """,
    ),
    (
        "forecasters",
        """
        answer resource_times naive_roofline rule_of_thumb measured_roofline no_overlap persistence
        last_measured
        analytic_constants device_rates calls geometry analytic levers gaussian_process transfer learned
        matmul_heuristics lookup registry
        command track baselines code
        """,
    ),
    ("git", "version identity limits reader special_files history tree_files objects work_tree commit ancestry clone"),
    (
        "evidence",
        """
        shared_parts findings record_checks object_checks chain reveals beacon draw_checks
        seal_checks run_checks known_cases sight_checks repeated_cases roof_checks
        forecaster_checks claim_checks void_checks staleness judge
        judged_ledger seal_inputs recompute_budget recompute run_code source_checks challenge signatures timestamps
        trust_levels log_proof log_bundle log_entries log_levels beyond_commit checkpoint
        audit_result audit
        """,
    ),
    (
        "device",
        """
        parent_process nvml machine_names gpu_selection facts cpu_load local_profile probe_kernels ncu_csv ncu_process
        ncu ncu_report rocprof
        """,
    ),
    (
        "measure",
        """
        inputs correctness result_form timer steady_timer cuda_graphs input_copies fresh_values result_check guard
        stream_rounds launch_contexts intervene run_cell ncu_target
        recompute_callable
        ordered_kernels callable_process order_checks apart order_counters order_records run_order
        peers contestants bench bench_self_test timeline
        tune_groups tune tuned_file cubin_tools compilation inspection inside machine_code comparison_effort
        compared_launches comparison
        kernel_trials interpreter work_checks kernel_check
        """,
    ),
    ("fleet", "placement attempts cell_process node received ray_cluster run_fleet"),
    ("library", "signature launch_cache operations"),
    ("calibrate", "rates kernel_candidates peaks_cuda cpu_rounds ceilings_cpu ceilings_cuda hardware_profile"),
    (
        "workflow",
        """
        init doctor question index_file record_index judged_facts growth audit_index kept_tables answers
        resolve_callable seal named_forecasts sight path_check select compared local_cells order
        withdraw hidden pulses draws ingest
        reveal_list attach_counters log_records calibrate drill_files drills practice new_kernel check_kernel
        import_problems export_traces revisions compare_plan compare_suite compare claim settle
        """,
    ),
    (
        "render",
        """
        report_text tables fitted_table claim_text counter_card markdown_page command_reference svg
        plot_model plot_layout roofline_svg strips_svg plot_terminal plot_table roofline_plot html_parts page_rows
        page_document page_sections html_page report forecast_table answers_text forecast_map status_table
        kept_cells history_table history_events score_sheet kept_scores
        cell_history_text ledger_diff_text score_values score_rows score_table audit_text
        kernel_card hardware_card inspection_card
        timeline_table bench_page before_after_page bench_points tuning_page candidates_text self_test_text
        comparison_text timer_page rules_page check_text audit_page site
        """,
    ),
    ("", "notebook api"),
    (
        "cli",
        """
        options output open_ledger kept_lists cells init doctor prompts witness sealing named challenge inspect predict
        forecast void reveal report history diff order fleet measure verify calibrate status score roofline audit
        hardware kernels bench compare claim timeline
        tune drill_prompts drill_quiz drill new check import_problems export app
        """,
    ),
    ("", "__main__"),
)
ORDER = [f"{folder}.{module}".lstrip(".") for folder, modules in LAYERS for module in modules.split()]
TORCH = """
    kernel launches device.gpu_selection device.facts device.local_profile device.probe_kernels
    callables.calls callables.flop_counter callables.counted_work callables.subject_files
    measure.result_form measure.fresh_values measure.guard measure.callable_process
    measure.inputs measure.correctness measure.result_check measure.timer measure.cuda_graphs measure.input_copies
    measure.stream_rounds
    measure.launch_contexts
    measure.intervene measure.run_cell measure.recompute_callable
    measure.ncu_target measure.order_checks measure.run_order measure.peers measure.contestants measure.bench
    measure.bench_self_test measure.timeline measure.tune measure.tuned_file measure.cubin_tools
    measure.compilation measure.inspection measure.kernel_trials library.launch_cache
    library.operations calibrate.rates calibrate.peaks_cuda calibrate.ceilings_cpu
    calibrate.ceilings_cuda calibrate.hardware_profile
""".split()


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "ledger").with_suffix("").parts)


@cache
def imports(path: Path) -> list[tuple[str, int]]:
    """Return each imported module with the column of its statement: 0 means at import."""
    return list(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.col_offset) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                # Modules of a kernel's folder, and of what kernels share, import each other.
                assert path in KERNELS and path.parent.parent.name == "kernels", f"{path}: relative import"
                continue
            # `from ledger.analysis import gap` names a module, `from ledger.analysis.gap import split` what one holds.
            within = ROOT / (node.module or "").replace(".", "/")
            modules = {alias.name for alias in node.names if (within / f"{alias.name}.py").is_file()}
            yield from ((f"{node.module}.{name}", node.col_offset) for name in modules)
            if len(modules) < len(node.names):
                yield node.module or "", node.col_offset


def test_every_module_has_one_place():
    names = {dotted(path) for path in MODULES if path.stem != "__init__"}
    assert names == set(ORDER)
    assert len(ORDER) == len(set(ORDER))


def places(name: str) -> range:
    """Return the places of a module, or of the modules of a folder, from the ground up."""
    found = [place for place, module in enumerate(ORDER) if module == name or module.startswith(f"{name}.")]
    return range(min(found), max(found) + 1)


@pytest.mark.parametrize("path", [path for path in MODULES if path.stem != "__init__"], ids=dotted)
def test_a_module_imports_only_from_above(path: Path):
    own = places(dotted(path))[0]
    for name, _ in imports(path):
        package, _, module = name.partition(".")
        if package == "ledger" and module not in ("", "__version__", "cli", "cli.main"):
            assert places(module)[-1] < own, f"{dotted(path)} imports {name}"


@pytest.mark.parametrize("path", MODULES + KERNELS, ids=lambda path: path.stem)
def test_torch_and_triton_are_imported_only_by_devices_and_only_when_called(path: Path):
    for name, column in imports(path):
        if name.partition(".")[0] in ("torch", "triton"):
            assert column > 0, f"{path.name} imports {name} at import"
            assert path in KERNELS or dotted(path) in TORCH, f"{path.name} imports {name}"


def test_no_module_imports_what_kernels_share():
    for path in MODULES:
        assert not [name for name, _ in imports(path) if name.startswith("ledger.kernels")], path.name


# Runs each command line of the arguments, all in this one interpreter, and says what it had loaded after each.
COMMANDS = """
import shlex, sys
from ledger.cli import main
for command in sys.argv[1:]:
    sys.argv = ["ledger", *shlex.split(command)]
    try:
        main()
    except SystemExit as done:
        assert not done.code, f"{command}: {done.code}"
    heavy = sorted({"torch", "triton"} & set(sys.modules))
    assert not heavy, f"ledger {command} loaded {heavy}"
"""
PREDICT = "predict rmsnorm_matmul --hw h200 --dtype fp16 --shape B=8,H=4096,O=4096 --regime hbm-bound --pct 60"


def test_commands_that_need_no_device_never_load_torch(tmp_path: Path):
    commands = (
        "init .", PREDICT,
        "--help", "hardware list", "hardware show h100_sxm", "kernels list", "kernels show matmul", "status", "log",
        "report", "report --json", "audit .", "audit --json", "order -o order.json",
        "forecast rmsnorm_matmul --hw h200 --json",
    )  # fmt: skip
    names = {f"GIT_{role}_{field}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, *commands],
        cwd=tmp_path,
        env={**os.environ, **names, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


FAULTS = """
import shlex, sys
from ledger.cli import main
for command in sys.argv[1:]:
    sys.argv = ["ledger", *shlex.split(command)]
    try:
        main()
    except SystemExit as done:
        assert done.code == 2, f"{command}: {done.code}"
    heavy = sorted({"torch", "triton"} & set(sys.modules))
    assert not heavy, f"ledger {command} loaded {heavy}"
"""


def test_commands_name_a_wrong_argument_before_they_load_torch(tmp_path: Path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    commands = (
        "bench zzz", "bench gemv --dtype zzz", "bench gemv --shape M=1", "bench --shape M", "bench --ceilings zzz",
        "bench --against none.json", "tune zzz --shape M=1", "tune gemv", "tune gemv --shape M=1",
        "timeline zzz -o t.json", "timeline gemv -o t.json --dtype zzz", "claim", "claim gemv --ratio 1.1",
        "claim gemv --ratio 1.1 --low 1 --high 1.2 --base zzz", "claim --unchanged zzz",
    )  # fmt: skip
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, *commands],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == len(commands)


def seconds(*command: str) -> float:
    """Return the processor time of a command: what others do on the machine adds little to it."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, capture_output=True, env={**os.environ, "PYTHONPATH": path})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
def test_help_starts_within_twice_the_time_of_its_libraries():
    runs: list[tuple[float, float]] = []
    # The shortest run of each is the one that nothing else disturbed; on a busy machine it takes more runs to find it.
    for _ in range(40):
        runs.append((seconds("-m", "ledger", "--help"), seconds("-c", "import typer, rich, pydantic")))
        help_s, libraries_s = map(min, zip(*runs, strict=True))
        if len(runs) >= 10 and help_s <= 2 * libraries_s:
            return
    assert help_s <= 2 * libraries_s
