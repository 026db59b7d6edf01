"""Train a network with a progress bar."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from training import TrainConfig, train_bundle


def train(config: TrainConfig, root: Path, console: Console, *, what: str) -> Path:
    """Train with a progress bar, calibrate and export.

    Args:
        config: What to train.
        root: Folder of bundles.
        console: Receives the progress bar.
        what: Name of the network and its data.

    Returns:
        The bundle's folder.

    Raises:
        training.DataError: The data set's files are missing or damaged.
    """
    columns = (
        TextColumn(f"training {what}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs, loss {task.fields[loss]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=config.epochs, loss="…")
        path = train_bundle(
            config, root, on_epoch=lambda epoch: progress.update(task, advance=1, loss=f"{epoch.loss:.4f}")
        )
    console.print(f"bundle {path}: exported to ONNX, golden inputs agree with PyTorch")
    return path
