"""The `candor` command: `serve` and `keys` work on this machine, other commands call the service at CANDOR_URL.

Exit codes: 0 done · 1 the answer is no (a recalibration was refused) · 2 wrong usage or configuration ·
3 no service answers · 4 the service refused the request · 5 the service failed.
"""

from __future__ import annotations

import sys
import traceback

import typer

from importing.cli import app as import_app
from importing.cli import isolate
from service.commands import (
    approval,
    doctor,
    export,
    import_policy,
    jobs,
    keys,
    labelled_sets,
    local,
    models,
    monitor,
    policy,
    predict,
    recalibration,
    remote,
    rows,
    score,
)
from service.commands.output import SERVER_ERROR

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Serve calibrated predictions with certified decisions.",
    epilog="Exit codes: 0 done, 1 the answer is no, 2 usage or configuration, 3 no service, 4 refused, 5 failed.",
)
app.add_typer(import_app, name="import", callback=import_policy.provide)
app.add_typer(keys.app, name="keys")
app.add_typer(policy.app, name="policy")
app.add_typer(labelled_sets.app, name="labelled-sets")
app.add_typer(jobs.app, name="jobs")

for verb in (
    local.serve,
    local.worker,
    doctor.doctor,
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
    approval.audit,
    models.models,
    models.load,
    models.unload,
    rows.erase,
    rows.prune,
):
    app.command()(verb)


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["import"]:
        isolate()
    try:
        app()
    except Exception:  # noqa: BLE001 — an unexpected error must not look like "the answer is no"
        traceback.print_exc()
        sys.exit(SERVER_ERROR)


if __name__ == "__main__":
    main()
