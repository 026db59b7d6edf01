"""The errors of this package.

CalibrationError
  ├ CalibrationDataError     invalid data, options or document from the caller
  └ CalibrationFitError      a fit without convergence, or a calibrator used before its fit
"""

from __future__ import annotations


class CalibrationError(Exception):
    """Base of every error that this package raises on purpose.

    Attributes:
        where: The argument, entry or document field at fault, such as ``"logits[12, 3]"``.
        found: What was found there, in words.
        expected: What is accepted there, in words.
    """

    def __init__(self, problem: str, *, where: str, found: str, expected: str) -> None:
        super().__init__(f"{problem}: {where} is {found}; expected {expected}")
        self.where = where
        self.found = found
        self.expected = expected


class CalibrationDataError(CalibrationError):
    """Invalid logits, labels, weights, probabilities, options or document."""


class CalibrationFitError(CalibrationError):
    """A fit without convergence, or a calibrator that is not fitted."""


def no_convergence(where: str, found: str, expected: str) -> CalibrationFitError:
    """Return the error of a fit that stopped before its optimum."""
    return CalibrationFitError("No convergence", where=where, found=found, expected=expected)


def shown(value: object) -> str:
    """Return the value as Python writes it, at most 60 characters."""
    try:
        text = repr(value)
    except ValueError:
        # Python refuses to write integers of more than a few thousand digits.
        return f"a {type(value).__name__} too long to write"
    return text if len(text) <= 60 else text[:57] + "..."
