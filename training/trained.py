"""A trained network, and the file that holds it between training and export."""

from __future__ import annotations

import hashlib
import json
import zipfile
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bundle import LabelledLogits, PublishedWeights
from bundle import Loss as LossRecord
from bundle.whole_file import whole_file
from training import export
from training.checks import check_loss, check_network
from training.config import TrainConfig
from training.data import Dataset, Splits
from training.determinism import deterministic
from training.epochs import OnEpoch, OnStep, Outcome, epoch_from
from training.errors import ConfigurationError
from training.export import logits_of
from training.exported import Exported
from training.imbalance import adjustment, chances, class_shift, row_weights
from training.loop import Rows, train
from training.losses import LOSSES, Criterion, Loss
from training.models import MODELS, assemble
from training.models.assemble import Architecture
from training.models.pretrained import fine_tuned, names_library, weights_of
from training.models.shift import Shift
from training.own import look_up
from training.team import ALONE, Team
from training.trees import TREES

_CHECKED = 16  # rows to try a network of your own with


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
        notes: What the defaults were and why, a sentence each.
    """

    config: TrainConfig
    data: Dataset
    parts: Splits
    module: nn.Module
    outcome: Outcome
    weights: PublishedWeights | None = None
    notes: tuple[str, ...] = ()

    def scored(self, rows: NDArray[np.int64]) -> LabelledLogits:
        """Return the network's logits for these rows, int64 (n,), with their labels, groups and weights."""
        data = self.data
        return LabelledLogits(
            logits_of(self.module, data.inputs_of(rows)),
            data.labels[rows],
            group=None if data.groups is None else data.groups[rows],
            weight=None if data.weights is None else data.weights[rows],
        )

    def exported(self) -> Exported:
        """Return the network as a graph, checked on golden inputs; raises ExportError."""
        golden = export.make_golden(self.module, self.data.inputs[self.parts.fit], self.data.encoder)
        model = export.to_onnx(self.module, golden.inputs)
        graph = export.graph_of(self.module, golden)
        return Exported(
            model=model,
            golden=golden,
            difference=export.check(model, golden, graph),
            graph=graph,
            parameters=sum(parameter.numel() for parameter in self.module.parameters()),
            architecture={
                "dropout": self.config.dropout,
                "centred": self.config.centred,
                **self.config.model_settings,
                **_origin(self.config),
            },
        )

    def described(self) -> dict[str, Any]:
        """Return what the manifest records of the training, beside data and seed."""
        if self.weights is not None:
            return {"epochs": 0, "weights": self.weights}
        config = self.config
        return {
            "loss": LossRecord(name=config.loss, coefficients=dict(config.coefficients)),
            "epochs": config.epochs,
            "batch_size": config.batch_size,
            "optimiser": config.optimiser,
            "learning_rate": config.learning_rate,
            "recipe": config.recipe(),
        }


@dataclass(frozen=True)
class Given:
    """What a program hands over instead of naming it in a configuration.

    Attributes:
        data: The data set, in memory.
        parts: Its parts.
        model: The network's factory; None for the configuration's.
        loss: The loss; None for the configuration's.
        notes: What the defaults were and why, a sentence each.
    """

    data: Dataset
    parts: Splits
    model: Architecture | None = None
    loss: Loss | None = None
    notes: tuple[str, ...] = ()


def learn(
    config: TrainConfig,
    *,
    given: Given | None = None,
    keep: Path | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
    team: Team = ALONE,
) -> Trained:
    """Train a network on the training part of its data set.

    Args:
        config: The run's settings.
        given: Data, network and loss in memory; None to take them from the configuration.
        keep: Checkpoint file to continue from. The caller removes it once the result is written.
        on_epoch: Called after every epoch.
        on_step: Called after every step.
        team: The processes that train together.

    Raises:
        ConfigurationError: A setting is invalid, or a network or loss of your own fails a check.
        DivergedError: The loss became NaN or infinite.
    """
    if given is None:
        whole = config.read()
        config, notes = config.suited(whole)
        given = Given(*config.cut(whole), notes=notes)
    config = config.suited(given.data, given.parts)[0]
    if config.model in TREES:
        raise ConfigurationError(f"{config.model} is not a network")
    data, parts = given.data, given.parts
    loss = given.loss or look_up("loss", LOSSES, config.loss)
    architecture = given.model or _architecture(config)
    classes = len(data.label_names)
    with deterministic(config.seed, config.threads, strict=config.deterministic):
        module = _build(config, architecture, data, parts)
        added = adjustment(config, data, parts.train)
        criterion = Criterion(loss, config.coefficients, len(parts.train), classes, adjustment=added)
        if architecture not in MODELS.values():
            tried = np.asarray(data.inputs[parts.train[:_CHECKED]])
            check_network(config.model, module, tried, classes, data.encoder)
        if loss not in LOSSES.values():
            check_loss(config.loss, criterion, classes, mixed=config.mixup > 0 or config.cutmix > 0)
        outcome = train(
            module,
            criterion,
            Rows(
                data.inputs_of(parts.train),
                data.labels[parts.train],
                row_weights(config, data, parts.train),
                chances(config, data, parts.train),
            ),
            config,
            validation=Rows(data.inputs_of(parts.validation), data.labels[parts.validation])
            if len(parts.validation)
            else None,
            keep=keep,
            on_epoch=on_epoch,
            on_step=on_step,
            team=team,
        )
    return Trained(config, data, parts, module, outcome, notes=given.notes)


def save(trained: Trained, path: Path) -> None:
    """Write weights and settings, without the folder of data sets, to one `.npz` file, whole or not at all."""
    config = {field.name: getattr(trained.config, field.name) for field in fields(trained.config)}
    config["coefficients"] = dict(trained.config.coefficients)
    config["data_settings"] = dict(trained.config.data_settings)
    config["model_settings"] = dict(trained.config.model_settings)
    config["data"] = config["pretrained"] = None
    outcome = trained.outcome
    document = {
        "config": config,
        "epochs": [asdict(epoch) for epoch in outcome.epochs],
        "best": outcome.best,
        "notes": trained.notes,
        "learned": outcome.learned.tolist(),
    }
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in trained.module.state_dict().items()}
    with whole_file(path) as stream:
        np.savez_compressed(stream, document=np.frombuffer(json.dumps(document).encode(), np.uint8), **arrays)


def check_writable(path: Path) -> None:
    """Raise ConfigurationError for a file that `save` would overwrite and that it did not write."""
    if path.exists():
        with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            if "document.npy" in archive.namelist():
                return
        raise ConfigurationError(
            f"{path} exists and does not contain weights that candor-train saved, expected a new file"
        )


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
            module = _build(config, _architecture(config), found, parts, load=False).eval()
            module.load_state_dict(
                {name: torch.from_numpy(archive[name]) for name in archive.files if name != "document"}
            )
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file, expected weights that candor-train saved") from None
    except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, zipfile.BadZipFile) as error:
        raise ConfigurationError(f"{path} does not contain weights that candor-train saved: {error}") from error
    return Trained(config, found, parts, module, outcome, notes=tuple(document.get("notes", ())))


def _origin(config: TrainConfig) -> dict[str, Any]:
    """Return what is known of the weights that a network of another library began with."""
    if not names_library(config.model):
        return {}
    weights = weights_of(config.model, config.pretrained)
    if weights is None or not weights.is_file():
        return {"image_size": config.image_size}
    with weights.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"image_size": config.image_size, "pretrained": {"file": weights.name, "sha256": digest}}


def _architecture(config: TrainConfig) -> Architecture | None:
    """Return a network's class or factory; None for a network of another library."""
    if names_library(config.model):
        return None
    if config.pretrained is not None or config.image_size is not None:
        raise ConfigurationError("weights and image_size belong to the models timm:NAME, torchvision:NAME, hf:FOLDER")
    found: Architecture = look_up("model", {**TREES, **MODELS}, config.model)
    return found


def _build(
    config: TrainConfig, architecture: Architecture | None, data: Dataset, parts: Splits, *, load: bool = True
) -> nn.Module:
    shape = data.shape(parts.train, centred=config.centred)
    if architecture is None:
        if config.dropout or config.centred or config.model_settings:
            raise ConfigurationError(f"dropout, centred and model settings do not apply to {config.model}")
        module = fine_tuned(
            config.model, shape, data.label_names, weights=config.pretrained, side=config.image_size, load=load
        )
    else:
        module = assemble(
            architecture,
            shape,
            len(data.label_names),
            dropout=config.dropout,
            settings=config.model_settings,
        )
    return _shifted(module, config, data, parts)


def _shifted(module: nn.Sequential, config: TrainConfig, data: Dataset, parts: Splits) -> nn.Sequential:
    shift = class_shift(config, data, parts.train)
    if shift is not None:
        if config.mixup or config.cutmix:
            raise ConfigurationError(
                "mixup and cutmix mix classes: they cannot be combined with class_weight, sampling or logit_adjustment"
            )
        module.append(Shift(torch.from_numpy(shift)))
    return module
