"""Assembles the commands into the application."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from ledger.cli import bench as benching
from ledger.cli import drill as drilling
from ledger.cli import inspect as inspecting
from ledger.cli import measure as measuring
from ledger.cli import predict as predicting
from ledger.cli import read as reading
from ledger.cli import tune as tuning
from ledger.cli import witness as witnessing

app = typer.Typer(
    name="ledger",
    no_args_is_help=True,
    add_completion=False,
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


@app.command()
def init(directory: Annotated[FilePath, typer.Argument(metavar="[DIR]")] = FilePath()) -> None:
    """Make the folders of a ledger, and a git repository where there is none."""
    from ledger.workflow.init import found

    for line in found(directory):
        typer.echo(line)


app.command()(predicting.predict)
app.command()(measuring.order)
app.command()(measuring.measure)
app.command()(measuring.verify)
app.command()(reading.report)
app.command()(reading.status)
app.command()(reading.log)
app.command()(reading.score)
app.command()(reading.roofline)
app.command()(reading.audit)
app.command()(predicting.void)
app.command()(witnessing.witness)
app.command()(witnessing.challenge)
app.command()(measuring.calibrate)
app.command()(benching.bench)
app.command()(benching.timeline)
app.command()(tuning.tune)
app.command()(inspecting.inspect)
app.command()(drilling.drill)
app.command()(reading.doctor)
app.add_typer(reading.hardware_app, name="hardware")
app.add_typer(reading.kernels_app, name="kernels")
