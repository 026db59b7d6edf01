"""A search for settings, by Optuna: pruned, and continued from its database."""

from __future__ import annotations

import json
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from training.config import TrainConfig
from training.epochs import Epoch, OnEpoch, Outcome
from training.errors import ConfigurationError, DivergedError
from training.recipe import Recipe

if TYPE_CHECKING:
    from training.trained import Given

OBJECTIVES = {"nll": "minimize", "ece": "minimize", "ece_at_temperature": "minimize"}
OBJECTIVES |= {"accuracy": "maximize", "refinement_auroc": "maximize"}
OBJECTIVES |= {"auroc": "maximize", "average_precision": "maximize"}  # of the rarer of two classes
_OF_MAPPINGS = ("coefficients", "model_settings")
_OF_THE_MACHINE = {"device", "threads", "compile", "channels_last"}
_TUNABLE = {field.name for field in fields(Recipe)} | {"model", "loss", "dropout", "image_size"}
_WHOLE = {field.name for field in fields(Recipe) if field.type in ("int", int)}
_TUNABLE -= {"seed", "milestones", *_OF_THE_MACHINE}
_SETTINGS = "candor"  # user attribute of the study
_START_UP, _SPARED = 5, 5  # trials, and share of the epochs, before any is stopped
HEARTBEAT_S, _GRACE_S, _AGAIN_S = 10, 60, 1
_RANGE = re.compile(r"(?P<low>[^.:,].*?)\.\.(?P<high>[^.:,].*?)(?P<log>:log)?")


@dataclass(frozen=True)
class Knob:
    """A setting to tune.

    Attributes:
        name: Field of `TrainConfig`, or `coefficients.NAME` or `model_settings.NAME`.
        choices: Its values; () for a range.
        low: Lower end of a range; whole if the range is of whole numbers.
        high: Upper end of a range, included.
        log: Whether the range is searched on a logarithmic scale.
    """

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    def suggest(self, trial: Any) -> Any:
        """Ask an Optuna trial for a value."""
        if self.choices:
            return trial.suggest_categorical(self.name, self.choices)
        ask = trial.suggest_int if isinstance(self.low, int) else trial.suggest_float
        return ask(self.name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Search:
    """A search.

    Attributes:
        base: Settings that stay.
        knobs: Settings to tune.
        storage: `sqlite:///FILE` or `postgresql://…`.
        trials: Trials in total, with those of earlier calls and other processes.
        name: Name of the study in the storage.
        objective: Key of `OBJECTIVES`, measured on the validation rows.
        prune: Whether a trial stops that is worse than half of the others at the same epoch.

    Raises:
        ConfigurationError: A value is out of range.
    """

    base: TrainConfig
    knobs: Sequence[Knob]
    storage: str
    trials: int
    name: str
    objective: str = "nll"
    prune: bool = True

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ConfigurationError(f"objective is {self.objective!r}, expected one of: {', '.join(OBJECTIVES)}")
        if self.trials < 1:
            raise ConfigurationError(f"trials is {self.trials}, expected at least 1")
        if not self.knobs:
            raise ConfigurationError("nothing to tune: --tune NAME=LOW..HIGH, --tune NAME=LOW..HIGH:log or NAME=A,B,C")
        if len({knob.name for knob in self.knobs}) < len(self.knobs):
            raise ConfigurationError("a setting has two --tune, expected one: --tune NAME=A,B,C names several values")
        if self.base.validation_rows == 0:
            raise ConfigurationError(
                "These settings leave no validation rows, expected rows to compare the trials on: --validation-rows"
            )

    def settings(self) -> dict[str, Any]:
        """Return what makes trials comparable, as plain values."""
        base = {field.name: getattr(self.base, field.name) for field in fields(self.base) if field.name != "data"}
        base = {name: value for name, value in base.items() if name not in _OF_THE_MACHINE}
        knobs = {each.name: [*each.choices] or [each.low, each.high, each.log] for each in self.knobs}
        plain = json.dumps({**base, "objective": self.objective, "tune": knobs}, default=_plain)
        document: dict[str, Any] = json.loads(plain)
        return document


@dataclass(frozen=True)
class Trial:
    """A finished trial.

    Attributes:
        number: From 0.
        value: The objective; None if it was pruned or diverged.
        settings: The tuned settings by name.
        why: Reason without a value.
    """

    number: int
    value: float | None
    settings: dict[str, Any]
    why: str = ""


def parse_knob(text: str) -> Knob:
    """Return the knob of `NAME=LOW..HIGH`, `NAME=LOW..HIGH:log` or `NAME=A,B,C`.

    Raises:
        ConfigurationError: The text has another form, or names a setting that cannot be tuned.

    Example:
        >>> parse_knob("learning_rate=1e-4..0.1:log")
        Knob(name='learning_rate', choices=(), low=0.0001, high=0.1, log=True)
        >>> parse_knob("loss=cross_entropy,focal").choices
        ('cross_entropy', 'focal')
    """
    name, equals, values = (part.strip() for part in text.partition("="))
    field, dot, _ = name.partition(".")
    if not (name in _TUNABLE or (dot and field in _OF_MAPPINGS)):
        known = ", ".join([*sorted(_TUNABLE), *(f"{each}.NAME" for each in _OF_MAPPINGS)])
        raise ConfigurationError(f"{name!r} cannot be tuned, expected one of: {known}")
    if not equals or not values:
        raise ConfigurationError(f"{text!r} names no values, expected {name}=LOW..HIGH, {name}=LOW..HIGH:log or A,B")
    if (found := _RANGE.fullmatch(values)) is None:
        return Knob(name, tuple(_value(value.strip()) for value in values.split(",")))
    low, high = _value(found["low"]), _value(found["high"])
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high)) or not low < high:
        raise ConfigurationError(f"{text!r}: expected two numbers in ascending order")
    if name in _WHOLE and not (isinstance(low, int) and isinstance(high, int)):
        raise ConfigurationError(f"{text!r}: {name} is a whole number, expected whole ends")
    if found["log"] and low <= 0:
        raise ConfigurationError(f"{text!r}: a logarithmic range begins above 0")
    if not (isinstance(low, int) and isinstance(high, int)):
        low, high = float(low), float(high)
    return Knob(name, (), low, high, bool(found["log"]))


def configured(base: TrainConfig, settings: Mapping[str, Any]) -> TrainConfig:
    """Return the configuration with tuned settings.

    Example:
        >>> configured(TrainConfig(loss="focal"), {"coefficients.gamma": 2.0, "epochs": 3}).coefficients
        {'gamma': 2.0}
    """
    changes: dict[str, Any] = {}
    for name, value in settings.items():
        field, dot, key = name.partition(".")
        changes[field] = {**changes.get(field, getattr(base, field)), key: value} if dot else value
    return replace(base, **changes)


Following = Callable[[int, TrainConfig], Any]
Tell = Callable[[Trial], None]
Lost = Callable[[int], None]


def run(
    search: Search,
    following: Following,
    tell: Tell,
    lost: Lost = lambda _: None,
    *,
    ray: str | None = None,
    workers: int | None = None,
) -> list[Trial]:
    """Run the trials that the storage still lacks; several processes may share one storage.

    Args:
        search: The search.
        following: From the number of a trial and its configuration to a context manager around it, which gives the
            function to call after each of its epochs.
        tell: Called after each trial of this process.
        lost: Called with the number of a trial whose process was killed, before its settings are tried again.
        ray: Address of the Ray cluster that trains; None for this process.
        workers: Maximum trials at a time on the cluster; None for as many as it has room for.

    Returns:
        All finished trials of the storage, the best first.

    Raises:
        ConfigurationError: A setting is invalid, Optuna or the storage is missing, or the storage holds another search.
        DivergedError: No trial came to its end.
        KeyboardInterrupt: The trial is tried again by the next call.
    """
    with _quiet() as optuna:
        study = _study(search, optuna, lost)
        states = optuna.trial.TrialState
        data, parts = search.base.load()
        from training.trained import Given

        if not len(parts.validation):
            raise ConfigurationError("validation_rows is 0, expected rows to compare the trials on")
        if ray is None:
            _run_here(study, search, Given(data, parts), following, tell)
        else:
            from training.ray_tune import run_trials

            run_trials(ray, workers, study, search, Given(data, parts), following, tell)
        finished = [trial_of(trial) for trial in study.get_trials(states=(states.COMPLETE, states.PRUNED))]
    sign = 1.0 if OBJECTIVES[search.objective] == "minimize" else -1.0
    finished.sort(key=lambda trial: (trial.value is None, sign * (trial.value or 0.0)))
    if finished[0].value is None:
        raise DivergedError(f"no trial came to its end; the last: {finished[-1].why}")
    return finished


def _run_here(study: Any, search: Search, given: Given, following: Following, tell: Tell) -> None:
    """Run the trials that a study still lacks in this process, one after another."""
    import optuna

    from training.pipeline import fit

    asked: dict[str, Any] = {}

    def objective(trial: Any) -> float:
        asked.clear()
        asked.update(_suggested(trial, search))
        config = configured(search.base, asked).suited(given.data, given.parts)[0]
        with following(trial.number, config) as note:
            try:
                outcome = fit(config, given, on_epoch=_reporting(trial, search, note)).outcome
            except DivergedError as error:
                trial.set_user_attr("why", str(error).partition(":")[0])
                raise optuna.TrialPruned from error
        return value_of(outcome, search.objective)

    while remaining(study, search) > 0:
        try:
            study.optimize(objective, n_trials=1, callbacks=[lambda _, trial: tell(trial_of(trial))])
        except KeyboardInterrupt:
            study.enqueue_trial(asked)
            raise


def remaining(study: Any, search: Search) -> int:
    """Return how many trials a study still lacks."""
    from optuna.trial import TrialState

    return search.trials - len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)))


def ask(study: Any, search: Search) -> tuple[Any, dict[str, Any]]:
    """Begin a trial as `study.optimize` does; return it with its settings."""
    from optuna.storages import fail_stale_trials

    fail_stale_trials(study)
    trial = study.ask()
    return trial, _suggested(trial, search)


def _suggested(trial: Any, search: Search) -> dict[str, Any]:
    from optuna.samplers import TPESampler

    # Random numbers of each trial's own: a search that goes on would draw those of its beginning again.
    seed = np.random.SeedSequence([search.base.seed, trial.number]).generate_state(1)[0]
    trial.study.sampler = TPESampler(seed=int(seed), constant_liar=True)
    return {knob.name: knob.suggest(trial) for knob in search.knobs}


def _reporting(trial: Any, search: Search, note: OnEpoch) -> OnEpoch:
    def on_epoch(epoch: Epoch) -> None:
        note(epoch)
        if not judged(trial, search, epoch):
            import optuna

            raise optuna.TrialPruned

    return on_epoch


def judged(trial: Any, search: Search, epoch: Epoch) -> bool:
    """Report an epoch to Optuna; return whether the trial goes on."""
    if epoch.validation is None:  # trees are evaluated once, at their end
        return True
    trial.report(_value_of(epoch, search.objective), epoch.number)
    if not (search.prune and trial.should_prune()):
        return True
    trial.set_user_attr("why", f"worse than half of the others after epoch {epoch.number}")
    return False


def value_of(outcome: Outcome, objective: str) -> float:
    """Return the objective at the epoch whose weights a bundle would have."""
    return _value_of(next(epoch for epoch in outcome.epochs if epoch.number == outcome.best), objective)


def _value_of(epoch: Epoch, objective: str) -> float:
    value = float(getattr(epoch.validation, objective))
    if math.isfinite(value):
        return value
    return 0.0 if OBJECTIVES[objective] == "maximize" else math.inf  # not defined, as where all rows are right


def trial_of(found: Any) -> Trial:
    """Return a finished trial of Optuna's."""
    value = found.value if found.state.name == "COMPLETE" else None
    return Trial(found.number, value, dict(found.params), found.user_attrs.get("why", ""))


@contextmanager
def _quiet() -> Iterator[Any]:
    try:
        import optuna
    except ImportError as error:
        raise ConfigurationError("search needs Optuna: python requirements/install.py search") from error
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.filterwarnings("ignore", "Heartbeat of storage")  # of trials on a cluster, it is kept
            yield optuna
    finally:
        optuna.logging.set_verbosity(before)


def _study(search: Search, optuna: Any, lost: Lost) -> Any:
    """Open the search's study, or begin it."""
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.pool import NullPool

    url = re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", search.storage)
    if not url.startswith(("sqlite:///", "postgresql+psycopg://")):
        raise ConfigurationError(
            f"storage is {re.sub('//[^@/]*@', '//…@', search.storage)!r}, expected sqlite:///FILE or "
            "postgresql://user:password@host/name"
        )
    retry = optuna.storages.RetryHeartbeatStaleTrialCallback()

    def stale(study: Any, trial: Any) -> None:
        lost(trial.number)
        retry(study, trial)

    def opened() -> tuple[Any, Any, Any]:
        storage = optuna.storages.RDBStorage(
            url,
            {"poolclass": NullPool},  # no connection is left open between two trials, nor at the end
            heartbeat_interval=HEARTBEAT_S,
            grace_period=_GRACE_S,
            heartbeat_stale_trial_callback=stale,
        )
        study = optuna.create_study(
            storage=storage,
            study_name=search.name,
            direction=OBJECTIVES[search.objective],
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(_START_UP, n_warmup_steps=search.base.epochs // _SPARED),
        )
        before, now = study.user_attrs.get(_SETTINGS), search.settings()
        if before is None:
            study.set_user_attr(_SETTINGS, now)
        elif before != now and {trial.state.name for trial in study.get_trials(deepcopy=False)} == {"FAIL"}:
            optuna.delete_study(study_name=search.name, storage=storage)  # its settings were refused
            return opened()
        return study, before, now

    failures = (SQLAlchemyError, ImportError, OSError, optuna.exceptions.OptunaError, RuntimeError)
    try:
        try:
            study, before, now = opened()
        except failures:  # another process may have made the same tables at the same time
            time.sleep(_AGAIN_S)
            study, before, now = opened()
    except failures as error:
        reason = re.sub("//[^@/]*@", "//…@", str(error.__cause__ or error)).partition("\n")[0]
        raise ConfigurationError(f"the storage cannot be used: {reason}") from error
    if before is not None and before != now:
        told = "; ".join(
            f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
            for name in sorted(before.keys() | now.keys())
            if before.get(name) != now.get(name)
        )
        raise ConfigurationError(
            f"the storage has another search by the name {search.name!r}: {told}; give this one another --study"
        )
    return study


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | bool) else text


def _plain(value: object) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)
