"""Import of a network trained elsewhere, from its published weights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bundle import PublishedWeights
from training.config import TrainConfig, choose
from training.data import split_held_out
from training.epochs import Outcome
from training.errors import ConfigurationError
from training.inputs import ImageShape
from training.models import MODELS, assemble
from training.models.published import load_published
from training.trained import Trained

_WHITE = 255.0
_REFERENCE_ROWS = 2_000


def import_published(path: Path, config: TrainConfig, mean: Sequence[float], deviation: Sequence[float]) -> Trained:
    """Load published weights into their network, behind the normalisation that they expect.

    Nothing is trained. The reference rows are test rows of the data set, or any rows if it has no test part: the caller
    must ensure that the network has not seen them.

    Args:
        path: The weights (`training.models.published`).
        config: The model, the data set of its classes, the reference rows and the calibrator.
        mean: Subtracted from each channel of the images, on the scale 0 … 1.
        deviation: Divisor of each channel after that, on the same scale, positive.

    Raises:
        ConfigurationError: A setting is invalid, or the weights do not belong to the model.
        DataError: Files of the data set are missing or damaged.
    """
    config = replace(config, model="lenet5" if config.model == "auto" else config.model)
    architecture = choose("model", MODELS, config.model)
    data = config.read()
    if data.kind != "image":
        raise ConfigurationError(f"{config.dataset} does not contain images, which published weights require")
    _, height, width, channels = data.inputs.shape
    if len(mean) != channels or len(deviation) != channels:
        raise ConfigurationError(
            f"{len(mean)} means and {len(deviation)} deviations, expected one of each for the {channels} channels of "
            f"{config.dataset}"
        )
    scale, shift = (tuple(_WHITE * value for value in values) for values in (deviation, mean))
    module = assemble(architecture, ImageShape(height, width, scale, shift), len(data.label_names)).eval()
    load_published(module[1], path)
    if config.reference_rows is None:
        config = replace(config, reference_rows=min(_REFERENCE_ROWS, len(data.test or data.labels) // 2))
    parts = split_held_out(
        data.labels,
        seed=config.seed,
        reference_rows=config.reference_rows or 0,
        fit_share=config.fit_share,
        certify_share=config.certify_share,
        test=data.test,
        stratified=config.stratified,
        groups=data.groups,
        equal=data.equal,
    )
    weights = PublishedWeights(
        file=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        mean=tuple(mean),
        deviation=tuple(deviation),
    )
    return Trained(config, data, parts, module, Outcome([], 0, np.empty(0, np.int32)), weights)
