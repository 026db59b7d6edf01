"""Thresholds that keep their rows while the calibrator changes: `on_uncertifiable: keep_previous`.

If the probabilities of both calibrators rise with the raw score only, the rows at or above a threshold are the rows at
or above its raw score, under both. The threshold moves to the new probability of that score, and the certificates
remain valid because the rows are the same. This requires two classes; with more, only `identity` keeps their order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calibrators import CalibrationError, Calibrator, EnsembleTemperature, Identity, Temperature
from calibrators.methods.margins import check_order, margin_logits
from candor.contract.certificates import SolvedBand, Threshold
from candor.contract.policies import TOP
from service.decisions.decide import log_odds, order_keys
from service.decisions.grid import key_of

_SYMMETRIC = (Identity, Temperature, EnsembleTemperature)
"""Methods that keep the predicted label, with a confidence that rises with its raw log-odds."""


class OrderLostError(Exception):
    """The same rows cannot be kept; the message says why."""


def same_rows(
    bands: tuple[SolvedBand, ...],
    positive: int | str,
    before: Calibrator,
    after: Calibrator,
    logits: npt.NDArray[np.float32],
) -> tuple[SolvedBand, ...]:
    """Move certified thresholds so that the same rows stay at or above them.

    Args:
        bands: Bands of a policy or a segment, with thresholds for `before`.
        positive: Column of the positive class, or "top" for the predicted label.
        before: The calibrator of the thresholds.
        after: The new calibrator.
        logits: float32 (N, K): rows on which the result is checked, since floats are rounded.

    Returns:
        The bands with their certificates; fixed thresholds, which promise nothing, do not move.

    Raises:
        OrderLostError: A calibrator may change the order of rows, or a row changes sides.
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
            raise OrderLostError(f"{flipped} rows at the threshold of {band.action!r} change sides through rounding")
        moved.append(band.model_copy(update={"threshold": threshold}))
    return tuple(moved)


def keeps_order(positive: int | str, before: Calibrator, after: Calibrator) -> bool:
    """Return whether two calibrators order all rows alike, rounding aside."""
    if before.to_dict() == after.to_dict():
        return True
    try:
        _check(positive, before, after)
    except OrderLostError:
        return False
    return True


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
    """Return the probability that is compared with a threshold, and the raw score, as `score_rows` does."""
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
    """Return the threshold with the new probability of its raw score; lower if rounding lowers a row on it."""
    if threshold.score is None:  # it takes every tie
        return threshold
    margin = np.array([-threshold.score if positive == 0 else threshold.score])
    there = _scored(positive, after, margin_logits(margin).astype(np.float32))[0]
    on_it = probability[score == np.float32(threshold.score)]
    return Threshold.at(float(np.concatenate([there, on_it]).min()), threshold.score)


def _at_or_above(
    threshold: Threshold, probability: npt.NDArray[np.float32], score: npt.NDArray[np.float32]
) -> npt.NDArray[np.bool_]:
    above: npt.NDArray[np.bool_] = order_keys(probability, score) >= key_of(threshold)
    return above
