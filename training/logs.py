"""The log of a run: JSON lines, and TensorBoard events if it is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from training.documents import without_nan
from training.epochs import Epoch, OnEpoch

JSON_LINES = "epochs.jsonl"


@contextmanager
def log_to(folder: Path) -> Iterator[OnEpoch]:
    """Log every epoch to a folder: a line of `epochs.jsonl`, and scalars for TensorBoard if it is installed.

    Epochs already in the log are not logged again, so that a run continued from a checkpoint has one log.

    Args:
        folder: The folder; created if missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / JSON_LINES
    kept = read_log(path) if path.exists() else []
    seen = {document["number"] for document in kept}
    with ExitStack() as stack:
        # Rewritten, because an interruption may have cut the last line.
        lines = stack.enter_context(path.open("w", encoding="utf-8"))
        lines.writelines(json.dumps(document) + "\n" for document in kept)
        lines.flush()
        board = _board(folder, stack)

        def on_epoch(epoch: Epoch) -> None:
            if epoch.number in seen:
                return
            seen.add(epoch.number)
            lines.write(json.dumps(without_nan(asdict(epoch)), allow_nan=False) + "\n")
            lines.flush()
            if board is not None:
                for name, value in scalars(epoch):
                    board.add_scalar(name, value, epoch.number)
                board.flush()

        yield on_epoch


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read the epochs that `log_to` wrote, without a last line cut by an interruption."""
    epochs = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            epochs.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return epochs


def _board(folder: Path, stack: ExitStack) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return stack.enter_context(SummaryWriter(folder))


def scalars(epoch: Epoch) -> Iterator[tuple[str, float]]:
    """Yield the numbers of an epoch with their names on a board."""
    yield "train/loss", epoch.loss
    yield "train/accuracy", epoch.accuracy
    yield "train/learning_rate", epoch.learning_rate
    yield "train/seconds", epoch.seconds
    if epoch.validation is not None:
        for name, value in asdict(epoch.validation).items():
            yield f"validation/{name}", value
