"""What `--policy` needs of the application: importing knows neither policies nor the service."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class PolicyFile(Protocol):
    """A policy that an import certifies; an unusable one ends the command."""

    def of(self, model: str) -> PolicyFile:
        """Return the same policy for another model."""

    def check(self, labels: Sequence[str], sharing: int = 1) -> None:
        """Refuse a policy that does not fit the labels of the model, or the number of labels that share delta."""

    def attach(self, bundle: Path) -> None:
        """Certify the policy on the bundle's reference rows, and put it where the service reads it."""
