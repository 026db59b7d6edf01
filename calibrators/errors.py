"""What can go wrong in calibration, drawn once.

CalibrationError
  ├ CalibrationDataError     the caller's data, options or document cannot be used
  └ CalibrationFitError      a fit did not reach its optimum, or a calibrator was used before it was fitted
"""

from __future__ import annotations


class CalibrationError(Exception):
    """Base of every error that this package raises on purpose.

    Attributes:
        where: The argument, entry or document field at fault, such as ``"logits[12, 3]"``.
        found: What stood there, in words.
        expected: What can stand there, in words.
    """

    def __init__(self, problem: str, *, where: str, found: str, expected: str) -> None:
        super().__init__(f"{problem}: {where} is {found}; expected {expected}")
        self.where = where
        self.found = found
        self.expected = expected


class CalibrationDataError(CalibrationError):
    """Logits, labels, weights, probabilities, options or a document that cannot be used."""


class CalibrationFitError(CalibrationError):
    """A fit that did not reach its optimum, or a calibrator that has not been fitted."""


def shown(value: object) -> str:
    """What an error says was found: the value as Python writes it, at most 60 characters of it."""
    try:
        text = repr(value)
    except ValueError:
        # Python writes no integer of more than some thousand digits.
        return f"a {type(value).__name__} too long to write"
    return text if len(text) <= 60 else text[:57] + "..."
