"""Data sets, by name. Nothing here imports torch."""

from collections.abc import Callable

from training.data import digits, drift
from training.data.dataset import Dataset
from training.data.splits import Splits, split

DATASETS: dict[str, Callable[[], Dataset]] = {
    "digits": digits.load,
}

__all__ = ["DATASETS", "Dataset", "Splits", "digits", "drift", "split"]
