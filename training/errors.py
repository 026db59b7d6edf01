"""Every error that training raises, as one tree.

TrainingError
├── ConfigurationError    an invalid setting, an unknown name, a data set that is too small
│   └── DataError         missing or damaged files of a data set
├── DivergedError         the loss became NaN or infinite
├── PoorModelError        the model is of no use: collapsed, or a calibrator at its bound
└── ExportError           the exported graph differs from the network

The command line turns them into one sentence and an exit code.
"""

from __future__ import annotations


class TrainingError(Exception):
    """Root of the tree."""


class ConfigurationError(TrainingError):
    """A setting is invalid; the message says what was found and what was expected."""


class DataError(ConfigurationError):
    """Files of a data set are missing or damaged; the message says what to download and where to put it."""


class DivergedError(TrainingError):
    """The loss became NaN or infinite; the message names the epoch and the step."""


class PoorModelError(TrainingError):
    """The model looks useless, or its calibrator undetermined, so no bundle was written; `problems` has the reasons."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(
            " ".join(problems) + " No bundle was written. To write it all the same: --allow-poor (allow_poor=True)"
        )
        self.problems = problems

    def __reduce__(self) -> tuple[type[PoorModelError], tuple[list[str]]]:
        """Let another process raise it."""
        return type(self), (self.problems,)


class ExportError(TrainingError):
    """The exported graph differs from the network, or cannot run here."""
