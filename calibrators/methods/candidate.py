"""The result of one method in a comparison."""

from __future__ import annotations

from dataclasses import dataclass

from calibrators.documents import Document


@dataclass(frozen=True, slots=True)
class Candidate:
    """The result of one method.

    Attributes:
        name: The method.
        loss: Mean out-of-fold log loss in nats, 0 or more; None if the method is excluded or nothing was compared.
        difference: Mean excess over the best method's loss, on the same rows; None likewise.
        standard_error: Standard error of that difference, paired and clustered by group, 0 or more; None likewise.
        error: Why the method is excluded (failed fit, temperature at its lower bound) or not compared, or None.
    """

    name: str
    loss: float | None
    difference: float | None
    standard_error: float | None
    error: str | None


def read_candidate(content: object) -> Candidate:
    """Read a candidate from its document: either all of its numbers, or none and perhaps an error.

    Raises:
        CalibrationDataError: Anything else.
    """
    document = Document(content)
    name = document.text("name")
    if name is None:
        document.refuse("name", "null", "the name of a method")
    loss, difference, standard_error = (
        document.number_or_null(field) for field in ("loss", "difference", "standard_error")
    )
    error = document.text("error")
    document.finish()
    some = [number is not None for number in (loss, difference, standard_error)]
    if any(some) and (error is not None or not all(some)):
        document.refuse("loss", "incomplete, or beside an error", "a loss, difference and standard error, or an error")
    for field, number in (("loss", loss), ("standard_error", standard_error)):
        if number is not None and number < 0:
            document.refuse(field, f"{number:g}", "0 or more")
    return Candidate(name, loss, difference, standard_error, error)
