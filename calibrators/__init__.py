"""Calibrators, calibration metrics and reliability diagrams for classifiers; numpy and scipy only.

Every calibrator takes logits (never guessed from probabilities: see `logits_from_probabilities`), and is used alike:

    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0], [3.0, 0.0], [0.0, 5.0], [0.0, 2.0]])
    >>> labels = np.array([0, 1, 1, 1])
    >>> calibrator = CALIBRATORS["temperature"]().fit(logits, labels)
    >>> probabilities = calibrator.predict_proba(logits)
    >>> from_dict(calibrator.to_dict()).predict_proba(logits).tolist() == probabilities.tolist()
    True

`CALIBRATORS` names them all; `docs/calibrators.md` says what to use when.
"""

from __future__ import annotations

from calibrators import metrics
from calibrators.auto import Auto
from calibrators.bbq import BBQ
from calibrators.beta import Beta
from calibrators.calibrator import Calibrator
from calibrators.centred_isotonic import CentredIsotonic
from calibrators.diagrams import confidence_histogram, reliability_diagram
from calibrators.dirichlet import Dirichlet
from calibrators.enir import ENIR
from calibrators.ensemble_temperature import EnsembleTemperature
from calibrators.errors import CalibrationDataError, CalibrationError, CalibrationFitError
from calibrators.histogram import Histogram
from calibrators.identity import Identity
from calibrators.inverse import inverse
from calibrators.isotonic import Isotonic
from calibrators.isotonic_multiclass import IsotonicMulticlass
from calibrators.margins import margin_thresholds
from calibrators.matrix import Matrix
from calibrators.platt import Platt
from calibrators.prior_shift import PriorShift
from calibrators.quadratic import Quadratic
from calibrators.scaling_binning import ScalingBinning
from calibrators.segmented import SegmentedCalibrator
from calibrators.softmax import logits_from_probabilities, softmax
from calibrators.spline import Spline
from calibrators.structured_matrix import StructuredMatrix
from calibrators.structured_vector import StructuredVector
from calibrators.temperature import Temperature
from calibrators.vector import Vector
from calibrators.venn_abers import VennAbers

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
    "CentredIsotonic",
    "Dirichlet",
    "EnsembleTemperature",
    "Histogram",
    "Identity",
    "Isotonic",
    "IsotonicMulticlass",
    "Matrix",
    "Platt",
    "PriorShift",
    "Quadratic",
    "ScalingBinning",
    "SegmentedCalibrator",
    "Spline",
    "StructuredMatrix",
    "StructuredVector",
    "Temperature",
    "Vector",
    "VennAbers",
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
    """Restores a fitted calibrator of any method from what its `to_dict` made.

    Args:
        document: The parsed JSON document.

    Raises:
        CalibrationDataError: Not an object, an unknown method or version, a field missing, unknown or out of range.

    Example:
        >>> from_dict({"method": "magic"})
        Traceback (most recent call last):
        calibrators.errors.CalibrationDataError: Unknown method: field 'method' is 'magic'; expected
        one of 'identity', ...
    """
    method = document.get("method") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(method, str) or method not in CALIBRATORS:
        raise CalibrationDataError(
            "Unknown method",
            where="field 'method'" if isinstance(document, dict) else "the document",
            found=repr(method) if isinstance(document, dict) else f"a {type(document).__name__}",
            expected="one that SegmentedCalibrator.from_dict restores"
            if method == SegmentedCalibrator.name
            else "one of " + ", ".join(map(repr, CALIBRATORS)),
        )
    return CALIBRATORS[method].from_dict(document)
