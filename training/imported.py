"""A network that was trained elsewhere, made ready for a bundle by its published weights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bundle import PublishedWeights
from training.config import TrainConfig, choose
from training.data import split_held_out
from training.errors import ConfigurationError
from training.inputs import ImageShape
from training.loop import Outcome
from training.models import MODELS, assemble
from training.models.published import load_published
from training.trained import Trained

_WHITE = 255.0


def import_published(path: Path, config: TrainConfig, mean: Sequence[float], deviation: Sequence[float]) -> Trained:
    """Put published weights into their network, with the normalisation that they expect before it.

    Nothing is trained. The reference rows are test rows of the data set, or any where it has no test part: whether the
    network has never seen those is for the caller to know.

    Args:
        path: The weights (`training.models.published`).
        config: The model, the data set of its classes, the reference rows and the calibrator.
        mean: What is subtracted from each channel of the images, on the scale 0 … 1.
        deviation: What each channel is then divided by, on the same scale, positive.

    Raises:
        ConfigurationError: Something in the configuration cannot work, or these are no such weights.
        DataError: Files of the data set are missing or damaged.
    """
    architecture = choose("model", MODELS, config.model)
    data = config.read()
    if data.kind != "image":
        raise ConfigurationError(f"{config.dataset} holds no images, expected some for published weights")
    _, height, width, channels = data.inputs.shape
    if len(mean) != channels or len(deviation) != channels:
        raise ConfigurationError(
            f"{len(mean)} means and {len(deviation)} deviations, expected one each for the {channels} channels of "
            f"{config.dataset}"
        )
    scale, shift = (tuple(_WHITE * value for value in values) for values in (deviation, mean))
    module = assemble(architecture, ImageShape(height, width, scale, shift), len(data.label_names)).eval()
    load_published(module[1], path)
    parts = split_held_out(
        data.labels,
        seed=config.seed,
        reference_rows=config.reference_rows,
        fit_share=config.fit_share,
        certify_share=config.certify_share,
        test=data.test,
        stratified=config.stratified,
    )
    weights = PublishedWeights(
        file=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        mean=tuple(mean),
        deviation=tuple(deviation),
    )
    return Trained(config, data, parts, module, Outcome([], 0, np.empty(0, np.int32)), weights)
