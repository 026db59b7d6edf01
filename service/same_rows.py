"""Thresholds that keep their rows while the calibrator changes: `on_uncertifiable: keep_previous`.

Where the probabilities of both calibrators rise with the raw score alone, the rows at or above a threshold are those
from its raw score on, under either. The threshold moves to where that score is now, and what was certified of its rows
holds: they are the same. That takes two classes; with more no method but `identity` keeps the order of rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from calibrators import CalibrationError, Calibrator, EnsembleTemperature, Identity, Temperature
from calibrators.margins import check_order, margin_logits
from service.decisions.decide import log_odds, order_keys
from service.decisions.policy import TOP
from service.decisions.solved import SolvedBand
from service.revision import Threshold

_SYMMETRIC = (Identity, Temperature, EnsembleTemperature)
"""Methods that leave the predicted label as it is, with a confidence that rises with its raw log-odds."""


class OrderLostError(Exception):
    """The same rows cannot be kept; says why."""


def same_rows(
    bands: tuple[SolvedBand, ...],
    positive: int | str,
    before: Calibrator,
    after: Calibrator,
    logits: npt.NDArray[np.float32],
) -> tuple[SolvedBand, ...]:
    """Move certified thresholds so that the same rows stay at or above them.

    Args:
        bands: Of a policy or a segment, with thresholds of the calibrator before.
        positive: Column of the positive class, or "top" for the predicted label.
        before: The calibrator that they are for.
        after: The one that they are moved to.
        logits: float32 (N, K): rows on which this is checked, however sure the theory is: floats are rounded.

    Returns:
        The bands, with their certificates as they are; fixed thresholds, which promise nothing, stay where they are.

    Raises:
        OrderLostError: One of the calibrators may change the order of rows, or a row does change sides.
    """
    if before.to_dict() == after.to_dict():
        return bands
    _check(positive, before, after)
    sides = _scored(positive, before, logits), _scored(positive, after, logits)
    moved = []
    for band in bands:
        if band.certificate is None or band.threshold is None:
            moved.append(band)
            continue
        threshold = _moved(band.threshold, positive, after, *sides[1])
        above = [_at_or_above(cut, *side) for cut, side in zip((band.threshold, threshold), sides, strict=True)]
        flipped = int((above[0] != above[1]).sum())
        if flipped:
            raise OrderLostError(f"{flipped} rows at the threshold of {band.action!r} change sides by rounding")
        moved.append(replace(band, threshold=threshold))
    return tuple(moved)


def _check(positive: int | str, before: Calibrator, after: Calibrator) -> None:
    for calibrator in (before, after):
        try:
            check_order(calibrator)
        except CalibrationError as error:
            raise OrderLostError(f"{calibrator.name!r} may change the order of rows: {error}") from error
        if positive == TOP and not isinstance(calibrator, _SYMMETRIC):
            raise OrderLostError(f"{calibrator.name!r} may change the predicted label")


def _scored(
    positive: int | str, calibrator: Calibrator, logits: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return what `score_rows` would: the probability that a threshold is compared with, and the raw score."""
    probabilities = calibrator.predict_proba(logits)
    if isinstance(positive, str):
        labels, confidence = calibrator.top_label(logits, probabilities)
        return np.asarray(confidence, np.float32), log_odds(logits, labels)
    return probabilities[:, positive].astype(np.float32), log_odds(logits, positive)


def _moved(
    threshold: Threshold,
    positive: int | str,
    after: Calibrator,
    probability: npt.NDArray[np.float32],
    score: npt.NDArray[np.float32],
) -> Threshold:
    """Return where a threshold's raw score is now; a row that stands on it may be a bit lower, by rounding."""
    if threshold.score == -np.inf:  # it takes every row
        return threshold
    margin = np.array([-threshold.score if positive == 0 else threshold.score])
    there = _scored(positive, after, margin_logits(margin).astype(np.float32))[0]
    on_it = probability[score == np.float32(threshold.score)]
    return Threshold(float(np.concatenate([there, on_it]).min()), threshold.score)


def _at_or_above(
    threshold: Threshold, probability: npt.NDArray[np.float32], score: npt.NDArray[np.float32]
) -> npt.NDArray[np.bool_]:
    cut = order_keys(np.array([threshold.probability], np.float32), np.array([threshold.score], np.float32))
    above: npt.NDArray[np.bool_] = order_keys(probability, score) >= cut
    return above
