"""probmetrics, and torch's softmax in its environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.packages.job import BARE, TEMPERATURE, Floats, Job, Jobs, Labels, Maker, softmax


def fit_tensors(name: str) -> Maker:
    """Methods written for tensors take the logits themselves."""

    def make(logits: Floats, labels: Labels) -> Job:
        import torch
        from probmetrics import calibrators
        from probmetrics.distributions import CategoricalLogits

        values, truth = CategoricalLogits(torch.from_numpy(logits)), torch.from_numpy(labels)
        return Job(
            lambda: getattr(calibrators, name)().fit_torch(values, truth),
            lambda fitted: fitted.predict_proba_torch(values).get_probs().detach().numpy(),
        )

    return make


def fit_arrays(name: str, kind: type[np.floating] = np.float32, **options: Any) -> Maker:
    """Methods written for arrays take probabilities."""

    def make(logits: Floats, labels: Labels) -> Job:
        from probmetrics import calibrators

        values = softmax(logits, kind)
        return Job(
            lambda: getattr(calibrators, name)(**options).fit(values, labels),
            lambda fitted: fitted.predict_proba(values),
        )

    return make


def ece(logits: Floats, labels: Labels) -> Job:
    """Use torchmetrics, on the top label, also for two classes."""
    import torch
    from torchmetrics.functional.classification import multiclass_calibration_error

    values, truth = torch.from_numpy(softmax(logits, np.float32)), torch.from_numpy(labels)
    return Job(lambda: multiclass_calibration_error(values, truth, num_classes=values.shape[1], n_bins=15), float)


def predict(rows: int | None = None) -> Maker:
    """Apply a fitted calibrator from array to array, to some or all rows."""

    def make(logits: Floats, labels: Labels) -> Job:
        import torch
        from probmetrics.calibrators import TemperatureScalingCalibrator
        from probmetrics.distributions import CategoricalLogits

        some = CategoricalLogits(torch.from_numpy(logits[:1_000]))
        fitted = TemperatureScalingCalibrator().fit_torch(some, torch.from_numpy(labels[:1_000]))
        fitted.invtemp_ = 1 / TEMPERATURE
        values = logits[:rows].copy()

        def call() -> Floats:
            told: Floats = fitted.predict_proba_torch(CategoricalLogits(torch.from_numpy(values))).get_probs().numpy()
            return told

        return Job(call)

    return make


def bare_softmax(logits: Floats, labels: Labels) -> Job:  # noqa: ARG001
    """Write to a prepared tensor, as ours writes to a prepared array."""
    import torch

    values = torch.from_numpy(logits)
    scaled, result = torch.empty_like(values), torch.empty_like(values)

    def call() -> Any:
        torch.div(values, TEMPERATURE, out=scaled)
        return torch.softmax(scaled, dim=1, out=result)

    return Job(call, lambda probabilities: probabilities.numpy(), BARE)


def bare_row(logits: Floats, labels: Labels) -> Job:  # noqa: ARG001
    """Convert from array to array, as a server does."""
    import torch

    row = logits[:1].copy()
    return Job(lambda: torch.softmax(torch.from_numpy(row) / TEMPERATURE, dim=1).numpy(), other=BARE)


JOBS: Jobs = {
    "temperature": {"": fit_tensors("TemperatureScalingCalibrator")},
    "vector": {"": fit_tensors("VectorScalingCalibrator")},
    "matrix": {"": fit_tensors("MatrixScalingCalibrator")},
    "structured_vector": {solver: fit_arrays("SVSCalibrator", opt=solver) for solver in ("bfgs", "saga")},
    "structured_matrix": {solver: fit_arrays("SMSCalibrator", opt=solver) for solver in ("bfgs", "saga")},
    "platt": {"": fit_arrays("BinaryLogisticCalibrator", np.float64, type="affine")},
    "histogram_width": {"": fit_arrays("BinaryHistogramBinningCalibrator", np.float64, n_bins=15)},
    "histogram_mass": {"": fit_arrays("BinaryHistogramBinningCalibrator", np.float64, n_bins=15, strategy="quantile")},
    "spline": {"": fit_arrays("CDFSplineCalibrator", np.float64)},
    "predict": {"": predict(), "torch": bare_softmax},
    "predict_one_row": {"": predict(1), "torch": bare_row},
    "ece": {"torchmetrics": ece},
}
