"""A run as it goes, for people and programs that watch it: JSON lines, and TensorBoard where it is installed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from training.loop import Epoch

JSON_LINES = "epochs.jsonl"


class OnEpoch(Protocol):
    """Whoever wants to know of each epoch."""

    def __call__(self, epoch: Epoch, /) -> None:
        """Take note of an epoch."""
        ...


@contextmanager
def log_to(folder: Path) -> Iterator[OnEpoch]:
    """Log every epoch to a folder: a line of `epochs.jsonl`, and scalars for TensorBoard where it is installed.

    An epoch that is there already is not logged again, so that a run which goes on from a checkpoint has one log.

    Args:
        folder: Made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / JSON_LINES
    kept = read_log(path) if path.exists() else []
    seen = {document["number"] for document in kept}
    with ExitStack() as stack:
        # Written anew: its last line may have been cut short.
        lines = stack.enter_context(path.open("w", encoding="utf-8"))
        lines.writelines(json.dumps(document) + "\n" for document in kept)
        lines.flush()
        board = _board(folder, stack)

        def on_epoch(epoch: Epoch) -> None:
            if epoch.number in seen:
                return
            seen.add(epoch.number)
            lines.write(json.dumps(_plain(asdict(epoch)), allow_nan=False) + "\n")
            lines.flush()
            if board is not None:
                for name, value in _scalars(epoch):
                    board.add_scalar(name, value, epoch.number)
                board.flush()

        yield on_epoch


def read_log(path: Path) -> list[dict[str, Any]]:
    """The epochs that `log_to` wrote; a last line that an interruption cut short is left out."""
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


def _scalars(epoch: Epoch) -> Iterator[tuple[str, float]]:
    yield "train/loss", epoch.loss
    yield "train/accuracy", epoch.accuracy
    yield "train/learning_rate", epoch.learning_rate
    yield "train/seconds", epoch.seconds
    if epoch.validation is not None:
        for name, value in asdict(epoch.validation).items():
            yield f"validation/{name}", value


def _plain(value: Any) -> Any:
    """The same with null for what is no number, which JSON cannot say."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
