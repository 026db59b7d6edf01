"""The `candor` command: `serve` and `keys` work on this machine, other commands call the service at CANDOR_URL.

Exit codes: 0 done · 1 the answer is no (a recalibration was refused) · 2 wrong usage or configuration ·
3 no service answers · 4 the service refused the request · 5 the service failed · 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from importing.cli import app as import_app
from importing.cli import isolate
from importing.usage import Commands
from service.commands import (
    approval,
    audit,
    bundle,
    cases,
    challenger,
    doctor,
    dossier,
    export,
    import_policy,
    jobs,
    keys,
    labelled_sets,
    labels,
    local,
    models,
    monitor,
    policy,
    recalibration,
    remote,
    rows,
    state,
)
from service.commands.bulk import predict, score
from service.commands.output import run
from service.version import VERSION

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Serve calibrated predictions with certified decisions.",
    epilog="Exit codes: 0 done, 1 the answer is no, 2 usage or configuration, 3 no service, 4 refused, 5 failed, "
    "130 interrupted.",
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"candor {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.add_typer(import_app, name="import", callback=import_policy.provide)
app.add_typer(bundle.app, name="bundle")
app.add_typer(keys.app, name="keys")
app.add_typer(policy.app, name="policy")
app.add_typer(challenger.app, name="challenger")
app.add_typer(labelled_sets.app, name="labelled-sets")
app.add_typer(jobs.app, name="jobs")
app.add_typer(cases.app, name="cases")
app.add_typer(state.app, name="state")
app.add_typer(audit.app, name="audit")
app.add_typer(labels.app, name="labels")

for verb in (
    local.serve,
    local.worker,
    doctor.doctor,
    dossier.dossier,
    export.export_onnx,
    predict.predict,
    score.score,
    remote.feedback,
    recalibration.recalibrate,
    recalibration.prior_shift,
    remote.revisions,
    remote.activate,
    remote.rollback,
    monitor.monitor,
    approval.reject,
    models.models,
    models.load,
    models.unload,
    rows.erase,
    rows.prune,
):
    app.command()(verb)


def main() -> None:
    """Run the command line."""
    run(_isolated if sys.argv[1:2] == ["import"] else app)


def _isolated() -> None:
    isolate()
    app()


if __name__ == "__main__":
    main()
