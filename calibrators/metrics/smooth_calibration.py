"""Smooth calibration error: a kernel instead of bins, with a width set by the error itself.

The reflected Gaussian kernel on [0, 1] is the heat kernel of a rod with insulated ends, diagonal in cosines:
K_σ(t, f) = 1 + 2 Σ_m exp(−π² m² σ² / 2) cos(π m t) cos(π m f). One cosine transform of the residuals serves every σ.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from calibrators.arrays import ArrayLike, Doubles
from calibrators.metrics.rows import TopLabels, top_labels

_COARSEST, _FINEST = 2**14, 2**20
# The grid is invisible to a kernel of at least this many cells: spreading a row over two neighbours adds less than
# 1 / (8 · 64²) = 3e-5 of the error, and most of that is removed again.
_CELLS_PER_WIDTH = 64
_STEP = 4


def smooth_calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
) -> float:
    """Return the smooth expected calibration error (smECE), in [0, 1] to about six decimals.

    It needs no bins and is continuous in the probabilities. With r_σ(t) = mean of K_σ(t, confidence) · (confidence −
    correct), the error at width σ is ∫ |r_σ(t)| dt over [0, 1]. It falls with σ; the smECE is the point at which it
    equals σ. K is the Gaussian kernel reflected at 0 and 1, so every row spreads a mass of exactly one.

    References:
        Błasiok, Nakkiran (2024), Smooth ECE, definitions 8 and 9. At the edges this uses the continuous extension of
        the kernel, which their code halves.

    Example:
        >>> round(smooth_calibration_error([[1.0, 0.0]] * 4, [0, 0, 0, 1]), 6)
        0.25
    """
    rows = top_labels(probabilities, labels, sample_weight, predicted, positive)
    cells = _COARSEST
    while True:
        width = _fixed_point(_cosine_transform(rows, cells))
        if width * cells >= _CELLS_PER_WIDTH or cells == _FINEST:
            return width
        cells = min(cells * 8, _FINEST)


def _cosine_transform(rows: TopLabels, cells: int) -> Doubles:
    """Return means (cells + 1,) of cos(π m f) · (f − correct) for m = 0 … cells, each row shared by two grid points."""
    position = rows.confidence.astype(np.float64)
    residuals = position - rows.correct
    if rows.weight is not None:
        residuals *= rows.weight
    total = float(len(residuals)) if rows.weight is None else float(rows.weight.sum())
    position *= cells
    left = np.minimum(position.astype(np.intp), cells - 1)
    position -= left
    position *= residuals
    masses = np.bincount(left, residuals, cells + 1).astype(np.float64)
    moved = np.bincount(left, position, cells + 1).astype(np.float64)
    masses -= moved
    masses[1:] += moved[:-1]
    masses[[0, -1]] *= 2
    return np.asarray(scipy.fft.dct(masses, type=1, overwrite_x=True), dtype=np.float64) / (2 * total)


def _fixed_point(transform: Doubles) -> float:
    """Return the σ at which the smoothed error equals σ; 0 if that lies below the grid's resolution."""
    least, high = 1 / len(transform), 1.0
    if _smoothed_error(transform, high) >= high:
        return high
    while high > least:  # narrow widths need many points, so they are tried last
        low = max(high / _STEP, least)
        error = _smoothed_error(transform, low)
        if error > low:
            found = scipy.optimize.brentq(lambda width: _smoothed_error(transform, width) - width, low, high, xtol=1e-9)
            return float(found)
        high = low
    return error


def _smoothed_error(transform: Doubles, width: float) -> float:
    """Return ∫ |r_σ(t)| dt without the spread over neighbouring grid points (a variance of a sixth of a cell's)."""
    cells = len(transform) - 1
    # Beyond these modes the kernel is below 1e-16; this many points resolve it.
    points = min(cells, max(256, 2 ** math.ceil(math.log2(32 / width))))
    modes = np.arange(min(points, math.ceil(2.8 / width)) + 1)
    variance = max(width**2 - 1 / (6 * cells**2), 0.0)
    spectrum = np.zeros(points + 1)
    spectrum[: len(modes)] = transform[: len(modes)] * np.exp(-0.5 * variance * (np.pi * modes) ** 2)
    curve = np.asarray(scipy.fft.dct(spectrum, type=1, overwrite_x=True), dtype=np.float64)
    # Exact for the line through the points, also if it crosses zero.
    size = np.abs(curve)
    sums = size[:-1] + size[1:]
    crossing = curve[:-1] * curve[1:] < 0
    area = sums.sum() - 2 * float(np.sum(size[:-1][crossing] * size[1:][crossing] / sums[crossing]))
    return float(area / (2 * points))
