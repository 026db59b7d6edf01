"""Find logits that give no probabilities."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bundle.graph import ProbabilityError
from service.errors import NonFiniteLogitsError
from service.places import in_body


def check_logits(logits: npt.NDArray[np.float32], *, first_row: int = 0) -> None:
    """Refuse a row with NaN or +∞, or with −∞ only (−∞ is a probability of zero).

    Args:
        logits: Shape (N, K).
        first_row: Number of the first row in the request, for the error.

    Raises:
        NonFiniteLogitsError: Names the first faulty row and its value.
    """
    lowest, highest = (reduce(logits, axis=None, initial=0.0) for reduce in (np.minimum.reduce, np.maximum.reduce))
    if -np.inf < lowest <= highest < np.inf:  # the usual case; NaN fails every comparison
        return
    # The largest value of a row decides: NaN and +∞ win every comparison.
    largest = np.maximum.reduce(logits, axis=1)
    finite = np.isfinite(largest)
    if finite.all():
        return
    row = int(np.argmin(finite))
    if largest[row] == -np.inf:
        found = "-inf for every class"
    else:
        wrong = np.isnan(logits[row]) | (logits[row] == np.inf)
        column = int(np.argmax(wrong))
        found = f"{logits[row, column]} for class {column}; {int(wrong.sum())} of {len(wrong)} classes are not finite"
    raise NonFiniteLogitsError(
        "The model returns no finite scores for an input.",
        where=in_body("inputs", first_row + row),
        found=found,
        expected="finite logits, or -inf for a probability of zero",
        remedy="Check this input: the arithmetic of the model overflows on it. Send the other inputs without it.",
    )


def out_of_range(error: ProbabilityError, *, first_row: int = 0) -> NonFiniteLogitsError:
    """Return the error of a row whose probabilities are not probabilities.

    Args:
        error: What the model's output gives.
        first_row: Number of the batch's first row in the request.
    """
    return NonFiniteLogitsError(
        "The model returns a number outside 0 to 1 where it should return a probability.",
        where=in_body("inputs", first_row + error.row),
        found=f"{error.value:.6g} in output {error.output}",
        expected="0 to 1",
        remedy="Check this input, and whether the model returns probabilities: if not, import it again with --output. "
        "Send the other inputs without it.",
    )
