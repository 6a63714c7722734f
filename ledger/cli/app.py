"""Assembles the commands into the application."""

from __future__ import annotations

from copy import copy
from typing import Annotated

import typer

from ledger.cli.audit import audit
from ledger.cli.bench import bench
from ledger.cli.calibrate import calibrate
from ledger.cli.challenge import challenge
from ledger.cli.check import check
from ledger.cli.claim import claim
from ledger.cli.compare import compare
from ledger.cli.diff import diff
from ledger.cli.doctor import doctor
from ledger.cli.drill import drill
from ledger.cli.export import export
from ledger.cli.forecast import forecast
from ledger.cli.hardware import hardware_app
from ledger.cli.history import history
from ledger.cli.import_problems import import_problems
from ledger.cli.init import init
from ledger.cli.inspect import inspect
from ledger.cli.kernels import kernels_app
from ledger.cli.measure import measure
from ledger.cli.new import new
from ledger.cli.order import order
from ledger.cli.predict import predict
from ledger.cli.report import report
from ledger.cli.reveal import reveal
from ledger.cli.roofline import roofline
from ledger.cli.score import score
from ledger.cli.status import log, status
from ledger.cli.timeline import timeline
from ledger.cli.tune import tune
from ledger.cli.verify import verify
from ledger.cli.void import void
from ledger.cli.witness import witness

app = typer.Typer(
    name="ledger",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Predict which resource binds a GPU kernel, seal the forecast, measure, and reconcile the two.",
)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from ledger import __version__

        typer.echo(f"ledger {__version__}")
        raise typer.Exit


for command in (
    init, forecast, predict, order, measure, verify, report, history, diff, status, log, score, roofline, audit, void,
    reveal, witness, challenge, calibrate, bench, compare, claim, timeline, tune, inspect, new, check, drill, doctor,
    export,
):  # fmt: skip
    app.command(command.__name__)(command)
app.command("import")(import_problems)
app.add_typer(hardware_app, name="hardware")
app.add_typer(kernels_app, name="kernels")


def run(first: str | None) -> None:
    """Run the command line, whose first word is given.

    Typer inspects the signatures of all commands that it has, which takes longer than most commands do: where the word
    names one, it is left alone.
    """
    commands = [one for one in app.registered_commands if one.name == first]
    groups = [one for one in app.registered_groups if one.name == first]
    asked = copy(app)
    if commands or groups:
        asked.registered_commands, asked.registered_groups = commands, groups
    asked()
