"""A trained network, and the file that holds it between training and export."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bundle import LabelledLogits, PublishedWeights
from training.config import TrainConfig, choose
from training.data import Dataset, Splits
from training.determinism import deterministic
from training.documents import whole_file
from training.epochs import OnEpoch, Outcome, epoch_from
from training.errors import ConfigurationError
from training.export import logits_of
from training.loop import Rows, train
from training.losses import LOSSES, Criterion
from training.models import MODELS, assemble
from training.team import ALONE, Team


@dataclass(frozen=True)
class Trained:
    """A trained network with its configuration and data.

    Attributes:
        config: The run's settings.
        data: The data set from `config.load`; reading it takes longer than a small network's training.
        parts: The rows that the network learned from, and those that it never saw.
        module: From stored inputs to logits, preprocessing included; in evaluation mode.
        outcome: Its epochs and the learned epoch of its training rows.
        weights: Origin of the weights, if it was trained elsewhere.
    """

    config: TrainConfig
    data: Dataset
    parts: Splits
    module: nn.Module
    outcome: Outcome
    weights: PublishedWeights | None = None

    def scored(self, rows: NDArray[np.int64]) -> LabelledLogits:
        """Return the network's logits for these rows, int64 (n,), with their labels."""
        return LabelledLogits(logits_of(self.module, self.data.inputs[rows]), self.data.labels[rows])


def learn(
    config: TrainConfig, *, keep: Path | None = None, on_epoch: OnEpoch | None = None, team: Team = ALONE
) -> Trained:
    """Train a network on the training part of its data set.

    Args:
        config: The run's settings.
        keep: Checkpoint file to continue from and to keep until the end.
        on_epoch: Called after every epoch.
        team: The processes that train together.

    Raises:
        ConfigurationError: A setting is invalid.
        DivergedError: The loss became NaN or infinite.
    """
    loss = choose("loss", LOSSES, config.loss)
    data, parts = config.load()
    with deterministic(config.seed, config.threads):
        module = _build(config, data, parts)
        outcome = train(
            module,
            Criterion(loss, config.coefficients, len(parts.train)),
            Rows(data.inputs[parts.train], data.labels[parts.train]),
            config,
            validation=Rows(data.inputs[parts.validation], data.labels[parts.validation])
            if len(parts.validation)
            else None,
            keep=keep,
            on_epoch=on_epoch,
            team=team,
        )
    return Trained(config, data, parts, module, outcome)


def save(trained: Trained, path: Path) -> None:
    """Write weights and settings, without the folder of data sets, to one `.npz` file, whole or not at all."""
    config = {field.name: getattr(trained.config, field.name) for field in fields(trained.config)}
    config["coefficients"] = dict(trained.config.coefficients)
    config["data_settings"] = dict(trained.config.data_settings)
    config["data"] = None
    outcome = trained.outcome
    document = {
        "config": config,
        "epochs": [asdict(epoch) for epoch in outcome.epochs],
        "best": outcome.best,
        "learned": outcome.learned.tolist(),
    }
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in trained.module.state_dict().items()}
    with whole_file(path) as stream:
        np.savez_compressed(stream, document=np.frombuffer(json.dumps(document).encode(), np.uint8), **arrays)


def load(path: Path, data: Path | None = None) -> Trained:
    """Read what `save` wrote, without pickle.

    Args:
        path: The file.
        data: Folder of data sets; None for CANDOR_DATA.

    Raises:
        ConfigurationError: The file does not contain weights saved by candor-train.
        DataError: The data that the network learned from are missing or damaged.
    """
    if path.exists() and not zipfile.is_zipfile(path):  # NumPy would take it for a pickle, and advise to trust it
        raise ConfigurationError(f"{path} does not contain weights that candor-train saved: not a complete .npz file")
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            document = json.loads(archive["document"].tobytes())
            config = replace(TrainConfig(**document["config"]), data=data)
            outcome = Outcome(
                [epoch_from(epoch) for epoch in document["epochs"]],
                document["best"],
                np.array(document["learned"], np.int32),
            )
            found, parts = config.load()
            module = _build(config, found, parts).eval()
            module.load_state_dict(
                {name: torch.from_numpy(archive[name]) for name in archive.files if name != "document"}
            )
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file, expected weights that candor-train saved") from None
    except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, zipfile.BadZipFile) as error:
        raise ConfigurationError(f"{path} does not contain weights that candor-train saved: {error}") from error
    return Trained(config, found, parts, module, outcome)


def _build(config: TrainConfig, data: Dataset, parts: Splits) -> nn.Module:
    architecture = choose("model", MODELS, config.model)
    return assemble(
        architecture, data.shape(parts.train, centred=config.centred), len(data.label_names), dropout=config.dropout
    )
