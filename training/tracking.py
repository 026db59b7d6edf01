"""Logging a run to MLflow: settings, epochs, and the bundle at the end."""

from __future__ import annotations

import inspect
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import bundle
from training.config import TrainConfig
from training.epochs import Epoch
from training.errors import ConfigurationError
from training.logs import scalars

_SCHEME = "mlflow:"
_LONGEST = 500  # characters of a value that every server takes
_LEFT_OUT = ("data",)  # where the data lie is the machine's


class Tracker:
    """One run of an MLflow experiment. A server that fails during the run is told once, and ends nothing.

    Args:
        client: `mlflow.MlflowClient`.
        run: Its id.
        trial: Trial of a search, which its name begins with.
    """

    def __init__(self, client: Any, run: str, trial: object = None) -> None:
        self._client, self._run, self._trial = client, run, trial
        self._told = False

    def settings(self, config: TrainConfig) -> None:
        """Log the settings after all defaults, those of the loss included, as the run's parameters."""
        told = {field.name: str(getattr(config, field.name)) for field in fields(config)}
        told |= {name: json.dumps(dict(getattr(config, name))) for name in ("data_settings", "model_settings")}
        told["coefficients"] = json.dumps(_coefficients(config))
        self._params({name: value for name, value in told.items() if name not in _LEFT_OUT})
        with self.tolerant():
            self._client.update_run(self._run, name=_named(config, self._trial))

    def _params(self, values: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        with self.tolerant():
            self._client.log_batch(self._run, params=[Param(name, text[:_LONGEST]) for name, text in values.items()])

    def epoch(self, epoch: Epoch) -> None:
        """Log an epoch's metrics under the names that TensorBoard shows, with the epoch as step."""
        self.metrics(dict(scalars(epoch)), epoch.number)

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Log metrics by name."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        with self.tolerant():
            self._client.log_batch(
                self._run, metrics=[Metric(name, value, now, step) for name, value in values.items()]
            )

    def tags(self, **values: object) -> None:
        """Set tags `candor.NAME`."""
        for name, value in values.items():
            with self.tolerant():
                self._client.set_tag(self._run, f"candor.{name}", str(value)[:_LONGEST])

    def bundle(self, path: Path) -> None:
        """Log a written bundle: its headline metrics, name, version and digest (id), its report and diagrams.

        Trees also have the parameters that their library had, as `library.NAME`.
        """
        found = bundle.verify(path)
        record = found.manifest.training
        if record is not None and "library" in record.recipe:
            self._params({f"library.{name}": str(value) for name, value in record.recipe.items()})
        self.metrics({f"bundle/{name}": value for name, value in found.manifest.metrics.items()})
        self.tags(model=found.manifest.model, version=found.manifest.version, bundle=found.id)
        with self.tolerant():
            self._client.log_artifacts(self._run, str(path / "report"), "report")

    def end(self, status: str) -> None:
        """End the run as FINISHED, FAILED or KILLED."""
        with self.tolerant():
            self._client.set_terminated(self._run, status)

    @contextmanager
    def tolerant(self) -> Iterator[None]:
        """Tell the first failure of the server in a block, and go on."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except (MlflowException, OSError, ImportError) as error:  # the last two of where artifacts are written
            if not self._told:
                sys.stderr.write(f"warning: MLflow fails, and the run goes on: {_reason(error)}\n")
            self._told = True


@contextmanager
def track_to(
    where: str, config: TrainConfig, experiment: str, *, stops: tuple[type[Exception], ...] = (), **tags: object
) -> Iterator[Tracker]:
    """Log a run for the length of a block; it ends as finished, failed, or killed by an interruption.

    Args:
        where: `mlflow:URI`, such as `mlflow:http://127.0.0.1:5000` or `mlflow:sqlite:///mlflow.db`.
        config: The run's settings, for its name; `Tracker.settings` logs them once nothing is left to the data.
        experiment: Name of the experiment; created if missing.
        stops: Exceptions that stop a run as an interruption does.
        **tags: Tags of the run, as `candor.NAME`.

    Raises:
        ConfigurationError: `where` has another form, MLflow is not installed, or it refuses.
    """
    with _beginning(where) as client:
        found = client.get_experiment_by_name(experiment)
        number = client.create_experiment(experiment) if found is None else found.experiment_id
        run = client.create_run(number, run_name=_named(config, tags.get("trial"))).info.run_id
    tracker = Tracker(client, run, tags.get("trial"))
    tracker.tags(**tags)
    status = "FAILED"
    killed: tuple[type[BaseException], ...] = (KeyboardInterrupt, *stops)
    try:
        yield tracker
        status = "FINISHED"
    except killed:
        status = "KILLED"
        raise
    finally:
        tracker.end(status)


def end_killed(where: str, experiment: str, **tags: object) -> None:
    """End the runs with these tags that a killed process left running.

    Args:
        where: As of `track_to`.
        experiment: Name of the experiment.
        **tags: Tags that they have, as `candor.NAME`.

    Raises:
        ConfigurationError: `where` has another form, MLflow is not installed, or its server fails.
    """
    with _beginning(where) as client:
        found = client.get_experiment_by_name(experiment)
        left = [] if found is None else client.search_runs([found.experiment_id], "attributes.status = 'RUNNING'")
        for run in left:
            if all(run.data.tags.get(f"candor.{name}") == str(value) for name, value in tags.items()):
                client.set_terminated(run.info.run_id, "KILLED")


@contextmanager
def _beginning(where: str) -> Iterator[Any]:
    """Make a client; raise ConfigurationError if the server fails in the block."""
    make = _client(where)
    from mlflow.exceptions import MlflowException

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its own use of SQLAlchemy
            yield make()
    except MlflowException as error:
        raise ConfigurationError(f"{where}: MLflow cannot be used: {_reason(error)}") from error


def _named(config: TrainConfig, trial: object) -> str:
    """Return the name of a run."""
    return ("" if trial is None else f"trial {trial}: ") + f"{config.model} {config.loss} {config.seed}"


def _coefficients(config: TrainConfig) -> dict[str, float]:
    """Return the coefficients of the loss, with its defaults."""
    from training.losses import LOSSES  # imports torch
    from training.own import look_up

    keywords = inspect.signature(look_up("loss", LOSSES, config.loss)).parameters.values()
    own = {
        each.name: each.default
        for each in keywords
        if each.kind is each.KEYWORD_ONLY and isinstance(each.default, int | float)
    }
    return own | dict(config.coefficients)


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _client(where: str) -> Callable[[], Any]:
    """Return what connects to MLflow."""
    uri = where.removeprefix(_SCHEME)
    if uri in ("", where):
        raise ConfigurationError(f"track is {where!r}, expected mlflow:URI, such as mlflow:http://127.0.0.1:5000")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it sends telemetry by default
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # of 7, with minutes between
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from mlflow import MlflowClient
    except ImportError as error:
        raise ConfigurationError("--track needs MLflow: python requirements/install.py track") from error
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    return lambda: MlflowClient(tracking_uri=uri)
