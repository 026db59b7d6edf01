"""What `candor-train search` prints."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from training.config import TrainConfig
from training.console import progress
from training.epochs import Epoch, OnEpoch
from training.options import typed
from training.search import Search, Trial, configured
from training.tracking import end_killed, track_to

_SHOWN = 10


class Following:
    """Progress of a search on standard error, and its trials in MLflow.

    Args:
        search: The search.
        track: Where to log each trial (`training.tracking`); None for nowhere.
        bars: Whether to show each trial's epochs; not where several trials run at a time.
    """

    def __init__(self, search: Search, track: str | None, *, bars: bool = True) -> None:
        self._search, self._track, self._bars = search, track, bars
        self._console = Console(stderr=True, emoji=False)

    @contextmanager
    def trial(self, number: int, config: TrainConfig) -> Iterator[OnEpoch]:
        """Show a trial's epochs for the length of a block; yield the function to call after each."""
        with ExitStack() as stack:
            followers: list[OnEpoch] = []
            if self._bars:
                followers.append(stack.enter_context(progress(f"Trial {number}", config.epochs)).epoch)
            if self._track is not None:
                from optuna import TrialPruned

                named = self._tags(number)
                run = track_to(self._track, config, self._search.name, stops=(TrialPruned,), **named)
                tracker = stack.enter_context(run)
                tracker.settings(config)
                followers.append(tracker.epoch)

            def on_epoch(epoch: Epoch) -> None:
                for follower in followers:
                    follower(epoch)

            yield on_epoch

    def lost(self, number: int) -> None:
        """End the run in MLflow of a trial whose process was killed."""
        if self._track is not None:
            end_killed(self._track, self._search.name, **self._tags(number))

    def _tags(self, number: int) -> dict[str, object]:
        return {"study": self._search.name, "trial": number}

    def tell(self, trial: Trial) -> None:
        """Print a line for a finished trial."""
        settings = ", ".join(f"{name} {_short(value)}" for name, value in trial.settings.items())
        why = f", {trial.why}" if trial.why else ""
        self._console.print(
            f"trial {trial.number}: {self._search.objective} {_result(trial)}{escape(why)}; {escape(settings)}",
            highlight=False,
            soft_wrap=True,
        )


def show_trials(search: Search, trials: Sequence[Trial], *, as_json: bool) -> None:
    """Print the best trials and the command that trains the best, or one JSON document."""
    best = configured(search.base, trials[0].settings)
    command = shlex.join(["candor-train", "train", "--out", "bundles", *typed(best), "--plain"])
    if as_json:
        told = [{"number": each.number, search.objective: each.value, "settings": each.settings} for each in trials]
        sys.stdout.write(json.dumps({"study": search.name, "trials": told, "command": command}) + "\n")
        return
    console = Console(emoji=False)
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for heading in ("trial", search.objective, *trials[0].settings):
        table.add_column(heading, justify="right")
    for each in trials[:_SHOWN]:
        table.add_row(str(each.number), _result(each), *map(_short, each.settings.values()))
    console.print(table)
    if len(trials) > _SHOWN:
        console.print(f"and {len(trials) - _SHOWN} more")
    console.print(f"\n{escape(command)}", highlight=False, soft_wrap=True)


def _result(trial: Trial) -> str:
    return "stopped" if trial.value is None else f"{trial.value:.4f}"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
