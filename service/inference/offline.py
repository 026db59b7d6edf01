"""Score many stored inputs for a job while the service runs."""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from bundle import Bundle
from bundle.graph import ProbabilityError
from service.errors import InputValueError, NonFiniteLogitsError
from service.inference.finite import check_logits, out_of_range
from service.inference.runtimes import open_runtime
from service.places import Place

_ROWS_PER_RUN: Final = 64
_THREADS: Final = 1  # the service has the others


class Scoring(Protocol):
    """Scores inputs that are read chunk by chunk: here at once, on a cluster when all of them are there."""

    def add(self, inputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Take inputs (N, …), N ≥ 0; return N entries that stand for their logits."""

    def finish(self, added: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return the logits (N, K) for which N such entries stand."""


class Scorer:
    """Run the model of a bundle on one CPU thread, a few rows at a time.

    Args:
        bundle: The bundle.
        where: Field of the job request that named the rows, for errors.
        run_timeout_s: Maximum seconds of a run.

    Raises:
        BundleRefusedError: The model cannot be loaded, or does not reproduce its golden logits.
    """

    def __init__(self, bundle: Bundle, *, where: Place, run_timeout_s: float) -> None:
        self._session = open_runtime(
            bundle,
            provider="cpu",
            threads=_THREADS,
            max_batch_size=_ROWS_PER_RUN,
            gpu_memory_bytes=None,
            run_timeout_s=run_timeout_s,
        )
        self._where = where

    def __call__(self, inputs: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return the logits (N, K) of inputs (N, …), N ≥ 0, in the bundle's input dtype.

        Raises:
            InputValueError: The graph refuses an input.
            NonFiniteLogitsError: The model returns no finite scores for an input.
            RunTooLongError: The model does not end for an input.
        """
        logits = np.empty((len(inputs), self._session.classes), dtype=np.float32)
        try:
            for first in range(0, len(inputs), _ROWS_PER_RUN):
                logits[first : first + _ROWS_PER_RUN] = self._session.run(inputs[first : first + _ROWS_PER_RUN])
            check_logits(logits)
        except ProbabilityError as error:
            refused = out_of_range(error)
            refused.place = self._where
            raise refused from None
        except InputValueError as error:
            error.place = self._where
            error.remedy = "Correct such inputs, or leave them out."
            raise
        except NonFiniteLogitsError as error:
            error.place = self._where
            error.remedy = "Leave such inputs out: the arithmetic of the model overflows on them."
            raise
        return logits

    def add(self, inputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the logits of inputs, at once; for `Scoring`."""
        return self(inputs)

    def finish(self, added: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return what `add` returned."""
        return added
