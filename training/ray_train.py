"""Training on a Ray cluster: processes that Ray Train starts run the loop of this package, and start it again."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bundle import BundleError
from bundle.ray_cluster import gpus
from training.config import OnStart, TrainConfig
from training.documents import check_folder
from training.epochs import Epoch, OnEpoch, OnStep
from training.errors import TrainingError
from training.ray_cluster import RESTARTS, cluster, last_line, standing_apart

_ASKED_EVERY_S: Final = 0.2


@dataclass(frozen=True)
class _Run:
    """What each process needs to know.

    Attributes:
        config: The run's settings.
        out: Folder of bundles.
        weights: File to save the trained network to; None for none.
        keep: Checkpoint file; None for none.
        allow_poor: Whether to write a poor model.
        folder: Working directory of the command, below which relative paths are.
    """

    config: TrainConfig
    out: Path
    weights: Path | None
    keep: Path | None
    allow_poor: bool
    folder: str


class Told:
    """An actor that holds what the processes tell, until the command asks for it."""

    def __init__(self) -> None:
        self._untold: list[tuple[str, Any]] = []
        self._over = False

    def tell(self, what: str, value: Any) -> None:
        """Note an event."""
        self._over |= what in ("made", "failed")
        self._untold.append((what, value))

    def take(self) -> list[tuple[str, Any]]:
        """Return the events since the last call."""
        taken, self._untold = self._untold, []
        return taken

    def over(self) -> bool:
        """Return whether the run has a bundle, or an error that another start would meet again."""
        return self._over


def train_on_ray(
    address: str,
    workers: int,
    config: TrainConfig,
    out: Path,
    *,
    weights: Path | None = None,
    keep: Path | None = None,
    on_start: OnStart | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,  # noqa: ARG001 — steps stay where they are taken
    allow_poor: bool = False,
) -> Path:
    """Train on a Ray cluster as `training.train_bundle` does here.

    If a process or its node ends, Ray Train starts all processes again, on the nodes that are left; with `keep` they
    continue from the checkpoint. Every node must reach the data and the paths.

    Args:
        address: Address of the cluster.
        workers: Processes that train one network together, each with `config.threads` CPUs (default: 1).
        config: As for `training.train_bundle`, as all further arguments and errors.
        out: Folder of bundles.
        weights: File for the trained network.
        keep: Checkpoint file.
        on_start: Called with the settings.
        on_epoch: Called after every epoch.
        on_step: Not called.
        allow_poor: Whether to write a poor model.

    Raises:
        ConfigurationError: Ray is not installed, or no cluster answers.
        TrainingError: The processes ended too often.
    """
    check_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    run = _Run(standing_apart(config), out, weights, keep, allow_poor, os.getcwd())  # noqa: PTH109 — a text
    made: list[Path] = []
    failed: list[Exception] = []

    def hear(what: str, value: Any) -> None:
        if what == "start" and on_start is not None:
            on_start(value)
        elif what == "epoch" and on_epoch is not None:
            on_epoch(value)
        elif what == "made":
            made.append(value)
        elif what == "failed":
            failed.append(value)

    with cluster(address) as ray:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        told = ray.remote(num_cpus=0)(Told).remote()
        own = tempfile.mkdtemp(prefix=".ray-", dir=out)  # Ray Train's, of which nothing is needed
        cpus, gpu = run.config.threads or 1, gpus(ray, config.device, workers)
        trainer = TorchTrainer(
            _work,
            train_loop_config={"run": run, "told": told},
            scaling_config=ScalingConfig(
                num_workers=workers, use_gpu=bool(gpu), resources_per_worker={"CPU": cpus, "GPU": gpu}
            ),
            run_config=RunConfig(
                name="candor",
                storage_path=str(Path(own).absolute()),
                failure_config=FailureConfig(max_failures=RESTARTS),
            ),
        )
        try:
            error = _followed(ray, trainer, told, hear)
        finally:
            shutil.rmtree(own, ignore_errors=True)
    if failed:
        raise failed[0]
    if not made:
        raise TrainingError(f"the processes on the Ray cluster ended {RESTARTS + 1} times: {last_line(error)}")
    return made[0]


def _followed(ray: Any, trainer: Any, told: Any, hear: Any) -> BaseException | None:
    """Run a trainer in a thread and hear what its processes tell; return its error."""
    errors: list[BaseException] = []

    def fit() -> None:
        try:
            trainer.fit()
        except BaseException as error:  # noqa: BLE001 — told by the caller
            errors.append(error)

    thread = threading.Thread(target=fit, name="ray train", daemon=True)  # Ctrl-C reaches the main thread
    thread.start()
    alive = True
    while alive:
        thread.join(_ASKED_EVERY_S)
        alive = thread.is_alive()
        for event in ray.get(told.take.remote()):
            hear(*event)
    return errors[0] if errors else None


def _work(given: dict[str, Any]) -> None:
    """Train in a process of Ray Train."""
    import ray

    from training.pipeline import run as train

    run, told = given["run"], given["told"]
    if ray.get(told.over.remote()):
        return
    os.chdir(run.folder)
    leads = os.environ["RANK"] == "0"

    def tell(what: str, value: Any) -> None:
        ray.get(told.tell.remote(what, value))

    def on_epoch(epoch: Epoch) -> None:
        tell("epoch", epoch)

    try:
        path = train(
            run.config,
            run.out,
            weights=run.weights,
            keep=run.keep,
            on_start=lambda config: tell("start", config),
            on_epoch=on_epoch,
            allow_poor=run.allow_poor,
        )
    except (TrainingError, BundleError, OSError) as error:
        if leads or not isinstance(error, OSError):
            tell("failed", error)
        raise
    if leads:
        tell("made", path)
