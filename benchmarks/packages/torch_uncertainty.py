"""torch-uncertainty: its scalers take tensors of logits, here in one batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.packages.job import TEMPERATURE, Floats, Job, Jobs, Labels, Maker, softmax


def fit(name: str, classes: bool = False, other: str = "", **options: Any) -> Maker:
    def make(logits: Floats, labels: Labels) -> Job:
        import logging

        import torch
        from torch_uncertainty import post_processing

        logging.disable(logging.WARNING)
        values, truth = torch.from_numpy(logits), torch.from_numpy(labels)
        chosen = {**options, **({"num_classes": logits.shape[1]} if classes else {})}

        def call() -> Any:
            scaler = getattr(post_processing, name)(model=None, **chosen)
            scaler.fit([(values, truth)], progress=False)
            return scaler

        return Job(call, lambda scaler: torch.softmax(scaler(values), dim=1).detach().numpy(), other)

    return make


def predict(rows: int | None = None) -> Maker:
    """Apply a fitted scaler from array to array, to some or all rows."""

    def make(logits: Floats, labels: Labels) -> Job:  # noqa: ARG001
        import torch
        from torch_uncertainty.post_processing import TemperatureScaler

        scaler = TemperatureScaler(model=torch.nn.Identity(), init_temperature=TEMPERATURE)
        scaler.trained = True
        values = logits[:rows].copy()
        return Job(lambda: torch.softmax(scaler(torch.from_numpy(values)), dim=1).numpy())

    return make


def metric(name: str, **options: Any) -> Maker:
    def make(logits: Floats, labels: Labels) -> Job:
        import torch
        from torch_uncertainty import metrics

        values, truth = torch.from_numpy(softmax(logits, np.float32)), torch.from_numpy(labels)
        chosen = {key: logits.shape[1] if value is None else value for key, value in options.items()}
        return Job(lambda: getattr(metrics, name)(**chosen)(values, truth), float)

    return make


JOBS: Jobs = {
    "temperature": {"": fit("TemperatureScaler")},
    "vector": {"": fit("VectorScaler", classes=True, other="no intercepts")},
    "matrix": {"": fit("MatrixScaler", classes=True)},
    "dirichlet": {"": fit("DirichletScaler", classes=True)},
    "isotonic": {"": fit("IsotonicRegressionScaler")},
    "histogram_width": {"": fit("HistogramBinningScaler", num_bins=15)},
    "predict": {"": predict()},
    "predict_one_row": {"": predict(1)},
    "ece": {"": metric("CalibrationError", task="multiclass", num_classes=None, num_bins=15)},
    "smooth": {"": metric("SmoothCalibrationError", kernel_type="reflected")},
}
