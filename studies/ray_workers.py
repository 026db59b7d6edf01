"""The cells of a study on a Ray cluster: Ray Tune places them; each works in its folder as anywhere else."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from typing import Any

from bundle.ray_cluster import gpus
from studies.grid import Event, Grid, work
from studies.workers import Tell
from training.ray_cluster import RESTARTS, Here, cluster, data_folder, last_line


def run_on_ray(address: str, grid: Grid, workers: int | None, tell: Tell) -> bool:
    """Run the remaining cells of a grid on a Ray cluster; one whose process ends is continued from its checkpoint.

    Args:
        address: Address of the cluster. Every node must reach the folders of studies and of data sets.
        grid: The grid.
        workers: Maximum cells at a time; None for as many as the cluster has room for.
        tell: Called in this process with the event, the cell's key, and a few words.

    Returns:
        Whether every cell came to an end; the others are left for the next run.

    Raises:
        ConfigurationError: Ray is not installed, or no cluster answers.
    """
    grid = replace(grid, out=grid.out.absolute(), data=data_folder(grid.data))
    left = [cell for cell in grid.cells if grid.state(cell) not in ("done", "failed")]
    if not left:
        return True
    heard = Here(tell)
    with cluster(address) as ray, tempfile.TemporaryDirectory(prefix="candor-") as own:
        from ray import tune

        class Told(tune.Callback):  # type: ignore[misc]  # Ray has no types
            """Passes on what a cell tells."""

            def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any) -> None:  # noqa: ARG002
                if "event" in result:
                    heard.value(*result["event"])

        cpus = max(cell.config.threads or 1 for cell in left)
        gpu = max(gpus(ray, cell.config.device) for cell in left)
        here = os.getcwd()  # noqa: PTH109 — a text, for every node
        results = tune.Tuner(
            tune.with_resources(tune.with_parameters(_work, grid=grid, folder=here), {"cpu": cpus, "gpu": gpu}),
            param_space={"place": tune.grid_search([grid.cells.index(cell) for cell in left])},
            tune_config=tune.TuneConfig(max_concurrent_trials=workers),
            run_config=tune.RunConfig(
                name="candor",
                storage_path=own,
                verbose=0,
                callbacks=[Told()],
                failure_config=tune.FailureConfig(max_failures=RESTARTS),
            ),
        ).fit()
    for error in results.errors:
        tell("lost", "a cell", f"its process ended {RESTARTS + 1} times: {last_line(error)}")
    return not results.errors


def _work(asked: dict[str, Any], *, grid: Grid, folder: str) -> None:
    """Run a cell in a process of Ray Tune; wait for it where another worker has it, or had it until it died."""
    from ray import tune

    os.chdir(folder)
    cell = grid.cells[asked["place"]]
    own = replace(grid, cells=[cell])

    def tell(event: Event, key: str, words: str) -> None:
        tune.report({"event": (event, key, words)})

    while grid.state(cell) not in ("done", "failed"):
        if not work(own, tell):
            time.sleep(grid.heartbeat_s)
