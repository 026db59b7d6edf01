"""Importing torchvision where its binary is for another build of PyTorch."""

from __future__ import annotations

import contextlib
import sys
from importlib.util import find_spec
from pathlib import Path

import torch


def define_missing_operators() -> None:
    """Name the operators that torchvision cannot be imported without, where its binary is for another build of PyTorch.

    The package index has torchvision for CUDA, which fails beside PyTorch for the CPU. Both operators belong to the
    detection of objects; classifiers use neither.
    """
    if "torchvision" in sys.modules or (place := find_spec("torchvision")) is None or place.origin is None:
        return
    with contextlib.suppress(OSError, StopIteration):
        torch.ops.load_library(next(Path(place.origin).parent.glob("_C*")))  # type: ignore[no-untyped-call]
        return
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # defined already
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
