"""Calibrators, calibration metrics and reliability diagrams for classifiers; requires numpy and scipy only.

Every calibrator takes logits, never probabilities (see `logits_from_probabilities`):

    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0], [3.0, 0.0], [0.0, 5.0], [0.0, 2.0]])
    >>> labels = np.array([0, 1, 1, 1])
    >>> calibrator = CALIBRATORS["temperature"]().fit(logits, labels)
    >>> probabilities = calibrator.predict_proba(logits)
    >>> from_dict(calibrator.to_dict()).predict_proba(logits).tolist() == probabilities.tolist()
    True

`CALIBRATORS` lists all methods; `docs/reference/calibrators.md` says which to use when.
"""

from __future__ import annotations

from calibrators import metrics
from calibrators.calibrator import Calibrator
from calibrators.diagrams import confidence_histogram, reliability_diagram
from calibrators.errors import CalibrationDataError, CalibrationError, CalibrationFitError
from calibrators.methods.auto import Auto
from calibrators.methods.bbq import BBQ
from calibrators.methods.beta import Beta
from calibrators.methods.centred_isotonic import CentredIsotonic
from calibrators.methods.dirichlet import Dirichlet
from calibrators.methods.enir import ENIR
from calibrators.methods.ensemble_temperature import EnsembleTemperature
from calibrators.methods.histogram import Histogram
from calibrators.methods.identity import Identity
from calibrators.methods.inverse import inverse
from calibrators.methods.isotonic import Isotonic
from calibrators.methods.isotonic_multiclass import IsotonicMulticlass
from calibrators.methods.margins import margin_thresholds
from calibrators.methods.matrix import Matrix
from calibrators.methods.platt import Platt
from calibrators.methods.prior_shift import PriorShift
from calibrators.methods.quadratic import Quadratic
from calibrators.methods.scaling_binning import ScalingBinning
from calibrators.methods.spline import Spline
from calibrators.methods.structured_matrix import StructuredMatrix
from calibrators.methods.structured_vector import StructuredVector
from calibrators.methods.temperature import Temperature
from calibrators.methods.tops import calibration_warning
from calibrators.methods.vector import Vector
from calibrators.methods.venn_abers import VennAbers
from calibrators.multicalibration import CellCalibration, Multicalibration
from calibrators.online import OnlinePlatt
from calibrators.registry import restored
from calibrators.softmax import logits_from_probabilities, softmax

__all__ = [
    "BBQ",
    "CALIBRATORS",
    "ENIR",
    "Auto",
    "Beta",
    "CalibrationDataError",
    "CalibrationError",
    "CalibrationFitError",
    "Calibrator",
    "CellCalibration",
    "CentredIsotonic",
    "Dirichlet",
    "EnsembleTemperature",
    "Histogram",
    "Identity",
    "Isotonic",
    "IsotonicMulticlass",
    "Matrix",
    "Multicalibration",
    "OnlinePlatt",
    "Platt",
    "PriorShift",
    "Quadratic",
    "ScalingBinning",
    "Spline",
    "StructuredMatrix",
    "StructuredVector",
    "Temperature",
    "Vector",
    "VennAbers",
    "calibration_warning",
    "confidence_histogram",
    "from_dict",
    "inverse",
    "logits_from_probabilities",
    "margin_thresholds",
    "metrics",
    "reliability_diagram",
    "softmax",
]

CALIBRATORS: dict[str, type[Calibrator]] = {
    "identity": Identity,
    "temperature": Temperature,
    "vector": Vector,
    "matrix": Matrix,
    "dirichlet": Dirichlet,
    "platt": Platt,
    "beta": Beta,
    "isotonic": Isotonic,
    "centred_isotonic": CentredIsotonic,
    "histogram": Histogram,
    "scaling_binning": ScalingBinning,
    "ensemble_temperature": EnsembleTemperature,
    "quadratic": Quadratic,
    "structured_vector": StructuredVector,
    "structured_matrix": StructuredMatrix,
    "isotonic_multiclass": IsotonicMulticlass,
    "venn_abers": VennAbers,
    "spline": Spline,
    "bbq": BBQ,
    "enir": ENIR,
    "prior_shift": PriorShift,
    "auto": Auto,
}


def from_dict(document: object) -> Calibrator:
    """Restore a fitted calibrator of any method from the document of its `to_dict`.

    Raises:
        CalibrationDataError: Not an object, an unknown method or version, or a field that is missing, unknown or out of
            range.

    Example:
        >>> from_dict({"method": "magic"})
        Traceback (most recent call last):
        calibrators.errors.CalibrationDataError: Unknown method: field 'method' is 'magic'; expected
        one of 'identity', ...
    """
    return restored(document)
