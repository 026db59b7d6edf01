"""Data sets, by name. Nothing here imports torch."""

from training.data import cifar10h, drift
from training.data.corruptions import CORRUPTIONS, corrupt
from training.data.dataset import Dataset
from training.data.load import DATASETS, SHIFTED, DataOptions, describe, load, parse_settings, settings_of
from training.data.splits import Splits, split, split_held_out

__all__ = [
    "CORRUPTIONS",
    "DATASETS",
    "SHIFTED",
    "DataOptions",
    "Dataset",
    "Splits",
    "cifar10h",
    "corrupt",
    "describe",
    "drift",
    "load",
    "parse_settings",
    "settings_of",
    "split",
    "split_held_out",
]
