"""The trials of a search on a Ray cluster: Ray Tune places them, Optuna and the search's database stay here."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from bundle.ray_cluster import gpus
from training.config import TrainConfig
from training.epochs import Epoch, OnEpoch
from training.errors import DivergedError, TrainingError
from training.ray_cluster import RESTARTS, Here, cluster, last_line, standing_apart
from training.search import HEARTBEAT_S, Following, Search, Tell, ask, configured, judged, remaining, trial_of
from training.trained import Given


@dataclass
class _Running:
    """A trial on the cluster.

    Attributes:
        trial: Optuna's trial.
        settings: The tuned settings by name.
        note: Called after each of its epochs.
        end: Ends what follows it.
        epochs: Epochs told so far; after a restart it tells them again.
        value: The objective, once it has come to its end.
    """

    trial: Any
    settings: dict[str, Any]
    note: OnEpoch
    end: ExitStack
    epochs: int = 0
    value: float | None = None


def run_trials(
    address: str, workers: int | None, study: Any, search: Search, given: Given, following: Following, tell: Tell
) -> None:
    """Run the trials that a study still lacks on a Ray cluster, some at a time.

    Args:
        address: Address of the cluster.
        workers: Maximum trials at a time; None for as many as the cluster has room for. With one, the trials are those
            of a search without Ray.
        study: The Optuna study.
        search: The search.
        given: The data set and its parts.
        following: As for `training.search.run`.
        tell: As for `training.search.run`.

    Raises:
        ConfigurationError: Ray is not installed, no cluster answers, or settings are invalid.
        TrainingError: A trial ended too often.
        KeyboardInterrupt: The trials are tried again by the next call.
    """
    search = replace(search, base=replace(standing_apart(search.base), threads=search.base.threads or 1))
    with cluster(address) as ray:
        from ray import tune
        from ray.tune.schedulers import FIFOScheduler, TrialScheduler
        from ray.tune.search import Searcher

        cpus, gpu = search.base.threads or 1, gpus(ray, search.base.device)
        most = workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // cpus)
        asked = _Asked(study, search, given, following, tell)
        here = Here(asked)

        class Suggested(Searcher):  # type: ignore[misc]  # Ray has no types
            """Asks Optuna for trials."""

            def suggest(self, trial_id: str) -> Any:
                return here.value.suggest(trial_id) or Searcher.FINISHED

            def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:  # noqa: ARG002
                here.value.complete(trial_id)

            def save(self, checkpoint_path: str) -> None:
                """Write nothing: a search goes on from its database."""

        class Judged(FIFOScheduler):  # type: ignore[misc]
            """Stops a trial that Optuna would stop."""

            def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:  # noqa: ARG002
                goes_on = here.value.hear(trial.trial_id, result)
                return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)

        class Refused(tune.Stopper):  # type: ignore[misc]
            """Stops all trials after an error that each would meet."""

            def __call__(self, trial_id: str, result: Any) -> bool:  # noqa: ARG002
                return False

            def stop_all(self) -> bool:
                return here.value.error is not None

        folder = os.getcwd()  # noqa: PTH109 — a text, for every node
        trainable = tune.with_parameters(
            _train, base=search.base, given=given, folder=folder, objective=search.objective
        )
        with tempfile.TemporaryDirectory(prefix="candor-") as own, asked.beating():
            tuner = tune.Tuner(
                tune.with_resources(trainable, {"cpu": cpus, "gpu": gpu}),
                tune_config=tune.TuneConfig(
                    search_alg=Suggested(metric="value", mode="min"),
                    scheduler=Judged(),
                    num_samples=-1,
                    max_concurrent_trials=most,
                ),
                run_config=tune.RunConfig(
                    name="candor",
                    storage_path=own,
                    verbose=0,
                    stop=Refused(),
                    failure_config=tune.FailureConfig(max_failures=RESTARTS),
                ),
            )
            try:
                results = tuner.fit()
            except KeyboardInterrupt:
                asked.give_back()
                raise
        if asked.error is not None:
            raise asked.error
        if results.errors:
            raise TrainingError(
                f"a trial ended {RESTARTS + 1} times on the Ray cluster: {last_line(results.errors[0])}"
            )


@dataclass
class _Asked:
    """The trials that Optuna was asked for."""

    study: Any
    search: Search
    given: Given
    following: Following
    tell: Tell
    running: dict[str, _Running] = field(default_factory=dict)
    error: BaseException | None = None

    def suggest(self, number: str) -> dict[str, Any] | None:
        """Return settings of a new trial; None if there are enough."""
        if self.error is not None or remaining(self.study, self.search) <= len(self.running):
            return None
        trial, settings = ask(self.study, self.search)
        end = ExitStack()
        config = configured(self.search.base, settings).suited(self.given.data, self.given.parts)[0]
        self.running[number] = _Running(trial, settings, end.enter_context(self.following(trial.number, config)), end)
        return {"settings": settings}

    def hear(self, number: str, result: dict[str, Any]) -> bool:
        """Note what a trial tells; return whether it goes on."""
        found = self.running.get(number)
        if found is None:
            return False
        if (error := result.get("error")) is not None:
            self.error = error
            return False
        if (why := result.get("why")) is not None:
            found.trial.set_user_attr("why", why)
        found.value = result.get("value", found.value)
        epoch: Epoch | None = result.get("epoch")
        if epoch is None or epoch.number <= found.epochs:
            return True
        found.epochs = epoch.number
        found.note(epoch)
        return judged(found.trial, self.search, epoch)

    def complete(self, number: str) -> None:
        """Tell Optuna and the caller how a trial ended."""
        found = self.running.pop(number, None)
        if found is None:
            return
        from optuna.trial import TrialState

        found.end.close()
        if found.value is not None:
            ended = self.study.tell(found.trial, found.value)
        elif "why" in found.trial.user_attrs:
            ended = self.study.tell(found.trial, state=TrialState.PRUNED)
        else:
            self.study.tell(found.trial, state=TrialState.FAIL)
            return
        self.tell(trial_of(ended))

    def give_back(self) -> None:
        """Have the settings of running trials tried again by the next call."""
        for number, found in list(self.running.items()):
            self.complete(number)
            self.study.enqueue_trial(found.settings)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Show other processes of the search, for the length of a block, that the trials are alive."""
        stop = threading.Event()
        storage = self.study._storage  # noqa: SLF001 — as Optuna's own loop does

        def beat() -> None:
            while not stop.wait(HEARTBEAT_S):
                for found in list(self.running.values()):
                    storage.record_heartbeat(found.trial._trial_id)  # noqa: SLF001

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _train(asked: dict[str, Any], *, base: TrainConfig, given: Given, folder: str, objective: str) -> None:
    """Train one trial in a process of Ray Tune."""
    from ray import tune

    from training.pipeline import fit
    from training.search import value_of

    os.chdir(folder)
    try:
        trained = fit(configured(base, asked["settings"]), given, on_epoch=lambda epoch: tune.report({"epoch": epoch}))
    except DivergedError as error:
        tune.report({"why": str(error).partition(":")[0]})
        return
    except TrainingError as error:
        tune.report({"error": error})
        return
    tune.report({"value": value_of(trained.outcome, objective)})
