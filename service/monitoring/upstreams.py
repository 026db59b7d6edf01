"""The thread that compares models on other servers with their bundles."""

from __future__ import annotations

import structlog

from service.errors import UpstreamError, UpstreamRejectedError
from service.monitoring.rounds import Rounds
from service.serving.model import Model
from service.serving.models import Models
from service.settings import Settings
from service.state.database import Database
from service.state.upstreams import record_upstream

logger = structlog.get_logger(__name__)


class UpstreamChecks(Rounds):
    """Checks every loaded model that runs elsewhere, and records changes in the audit log.

    Each replica checks for itself, since each has its own way to the server; one of them writes the record.

    Args:
        settings: Settings of the service.
        database: Open state.
        models: The models.
    """

    def __init__(self, settings: Settings, database: Database, models: Models) -> None:
        super().__init__("upstreams", models, settings.upstream_interval_s)
        self._database = database
        self._recorded: dict[str, tuple[str, bool]] = {}  # revision, and whether it had changed, by model

    def _visit(self, model: Model) -> bool:
        served, active = model.plane.served, model.remote
        for remote in model.remotes:
            try:
                remote.check()
            except (UpstreamError, UpstreamRejectedError) as error:
                logger.warning("model's server not checked", model=model.name, error=str(error), found=error.found)
                continue
            if served is not None and remote is active:
                self._record(model.name, served.revision.id, remote.changed)
        return False

    def _record(self, model: str, revision: str, changed: str | None) -> None:
        state = revision, changed is not None
        if self._recorded.get(model) == state:
            return
        if record_upstream(self._database, model, revision, changed):
            if changed is None:
                logger.info("model on its server is as it was", model=model)
            else:
                logger.error("model has changed on its server", model=model, found=changed)
        self._recorded[model] = state
