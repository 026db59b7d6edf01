"""Packages for a single method: betacal, venn-abers, splinecalib, relplot, uncertainty-calibration."""

from __future__ import annotations

import numpy as np

from benchmarks.packages.job import Floats, Job, Jobs, Labels, one_for_two, softmax, top_label


def beta(logits: Floats, labels: Labels) -> Job:
    from betacal import BetaCalibration

    values = one_for_two(logits)
    return Job(lambda: BetaCalibration().fit(values, labels), lambda fitted: fitted.predict(values))


def venn_abers(logits: Floats, labels: Labels) -> Job:
    from venn_abers import VennAbers

    values = softmax(logits)

    def call() -> VennAbers:
        # Its fit returns nothing.
        fitted = VennAbers()
        fitted.fit(values, labels)
        return fitted

    return Job(call, lambda fitted: fitted.predict_proba(values)[0])


def spline(logits: Floats, labels: Labels) -> Job:
    from splinecalib import SplineCalib

    values = one_for_two(logits)

    def call() -> SplineCalib:
        fitted = SplineCalib()
        fitted.fit(values, labels)
        return fitted

    return Job(call, lambda fitted: fitted.calibrate(values))


def smooth(logits: Floats, labels: Labels) -> Job:
    """Use class 1 of two classes, else the top label by the package's own function."""
    import relplot

    if logits.shape[1] == 2:
        scores = one_for_two(logits)
        return Job(lambda: relplot.smECE(scores, labels))
    values = softmax(logits, np.float32)
    return Job(lambda: relplot.smECE(*relplot.multiclass_logits_to_confidences(values, labels, probs=True)))


def smooth_confidences(logits: Floats, labels: Labels) -> Job:
    import relplot

    confidences, hits = top_label(logits, labels)
    return Job(lambda: relplot.smECE(confidences, hits))


def debiased_squared(logits: Floats, labels: Labels) -> Job:
    """Use equal-mass bins on the top label; the package returns the root, so its square is compared."""
    import calibration

    values = softmax(logits, np.float32)
    return Job(
        lambda: calibration.get_calibration_error(values, labels, p=2, debias=True, mode="top-label"),
        lambda root: float(root) ** 2,
    )


def debiased_absolute(logits: Floats, labels: Labels) -> Job:
    import calibration

    values = softmax(logits, np.float32)
    return Job(lambda: calibration.get_calibration_error(values, labels, p=1, debias=True, mode="top-label"), float)


BETACAL: Jobs = {"beta": {"": beta}}
VENN_ABERS: Jobs = {"venn_abers": {"": venn_abers}}
SPLINECALIB: Jobs = {"spline": {"": spline}}
RELPLOT: Jobs = {"smooth": {"": smooth}, "smooth_confidences": {"": smooth_confidences}}
UNCERTAINTY_CALIBRATION: Jobs = {
    "debiased_squared": {"": debiased_squared},
    "debiased_absolute": {"": debiased_absolute},
}
