"""One worker's process: `python -m service.commands.worker CONTROL CONNECTIONS`, started by the supervisor.

The arguments are the numbers of two open sockets; the settings are the first message of the first one.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys

import typer
import uvicorn

from service.commands.local import exit_on_signals, secrets_of
from service.commands.output import reporting
from service.commands.process import application_of, run, uvicorn_options
from service.settings import Settings
from service.telemetry.logs import configure_logs
from service.workers.server import WorkerServer
from service.workers.team import Team


def main() -> None:
    """Serve until the supervisor asks for the end, or is gone."""
    exit_on_signals()
    gc.disable()  # until the application is made
    _keep_to_oneself()
    control, connections = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    team = Team(control, connections)
    try:
        with reporting():
            settings = Settings(**team.settings)
            configure_logs(settings.log_level, secrets_of(settings), worker=team.number)
            application = application_of(settings, team)
            config = uvicorn.Config(application, **uvicorn_options(settings, application))
            run(WorkerServer(config, team, application.runtime.models.stop_loading), application)
    except typer.Exit as end:
        sys.exit(end.exit_code)


def _keep_to_oneself() -> None:
    """Let no child inherit what came from the supervisor: a child that lived on would keep the state's lock."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 — numbers
        if int(name) > 2:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.set_inheritable(int(name), False)


if __name__ == "__main__":
    main()
