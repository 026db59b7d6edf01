"""The Ray cluster that trains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bundle.ray_cluster import NoClusterError, connected
from training.config import TrainConfig
from training.data.distribution import VARIABLE
from training.errors import ConfigurationError

RESTARTS: Final = 3
"""How often a process that ended is started again."""
_SETTINGS: Final = {
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "600",  # busy nodes take minutes to import PyTorch; the default is 60
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # logs are Candor's
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends the command as everywhere
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
}


@dataclass
class Here:
    """Something of this process alone: Ray Tune writes all that it is given to a file, this as nothing.

    Attributes:
        value: What it is.
    """

    value: Any

    def __reduce__(self) -> tuple[type[Here], tuple[None]]:
        return Here, (None,)


@contextmanager
def cluster(address: str) -> Iterator[Any]:
    """Connect to a Ray cluster for the length of a block; yields the module `ray`.

    Raises:
        ConfigurationError: Ray is not installed, or no cluster answers.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        with connected(address) as ray:
            yield ray
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise ConfigurationError("--ray needs Ray: python requirements/install.py ray") from error
    except NoClusterError as error:
        raise ConfigurationError(f"the Ray cluster {address} does not answer: {error}") from error


def standing_apart(config: TrainConfig) -> TrainConfig:
    """Return settings that mean the same on every node: with the folder of data sets that is this machine's."""
    return replace(config, data=data_folder(config.data))


def data_folder(folder: Path | None) -> Path | None:
    """Return the folder of data sets: the one given, or CANDOR_DATA of this process."""
    named = folder or os.environ.get(VARIABLE)
    return None if not named else Path(named).absolute()


def last_line(error: object) -> str:
    """Return the last line of an error's text, where Ray puts the reason."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else "no reason given"
