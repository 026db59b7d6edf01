"""Model, then calibrator: what turns a batch of inputs into logits and probabilities.

On a GPU both run there, as two sessions: the calibrator's is a small graph, made when its revision is loaded, whose
input is the very memory that the model wrote its logits to. On a CPU the calibrator itself is used
(docs/decisions/0005-calibrators-as-onnx-graphs.md).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from calibrators import CalibrationDataError, Calibrator
from service.errors import ConfigurationError, RevisionStateError
from service.inference.finite import check_logits
from service.inference.session import Session
from service.inference.stages import Stage, rows_of

_TOLERANCE = 1e-4  # of probabilities; the graph computes in float64, as the calibrator does

Scores = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]


class Chain:
    """Runs a model and a calibrator one after the other, where the model is.

    Args:
        session: The model, shared with other chains.
        calibrator: Fitted for as many classes as the model has.

    Raises:
        ConfigurationError: The model is on a GPU, and what makes graphs of calibrators is not installed.
        RevisionStateError: The graph gives other probabilities there than the calibrator itself.
    """

    def __init__(self, session: Session, calibrator: Calibrator) -> None:
        self._session = session
        self._calibrator = calibrator
        self._graph = _Graph(session, calibrator) if session.bound else None
        self._calibrate_ns = 0

    @property
    def calibrate_ns(self) -> int:
        """Nanoseconds that calibration has taken in all runs."""
        return self._calibrate_ns if self._graph is None else self._graph.calibrate_ns

    def run(self, inputs: npt.NDArray[Any], *, first_row: int = 0) -> Scores:
        """Return logits and probabilities, float32 (N, K) each, of a batch (N, …) in the bundle's input dtype.

        Args:
            inputs: The batch.
            first_row: Number of its first row in the request, for an error.

        Raises:
            NonFiniteLogitsError: The model gives NaN, +∞ or nothing but −∞ for a row.
        """
        if self._graph is None:
            logits = self._session.run(inputs)
            began = time.perf_counter_ns()
            try:
                probabilities = self._calibrator.predict_proba(logits)
            except CalibrationDataError:  # it looks at every row anyhow: only now it costs anything to look again
                check_logits(logits, first_row=first_row)
                raise
            self._calibrate_ns += time.perf_counter_ns() - began
            return logits, probabilities
        parts = [self._graph.run(part) for part in self._session.parts(inputs)]
        if len(parts) == 1:
            logits, probabilities = parts[0]
        else:
            logits, probabilities = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        check_logits(logits, first_row=first_row)  # a graph passes on what it is given
        return logits, probabilities


class _Graph:
    """The calibrator as a session on the model's device, bound to each stage's logits."""

    def __init__(self, session: Session, calibrator: Calibrator) -> None:
        try:
            from bundle.onnx_graph import calibrator_model
        except ImportError as error:
            raise ConfigurationError(
                "A calibrator cannot be put on the GPU without the package `onnx`.",
                where="CANDOR_PROVIDER",
                found=str(error),
                remedy="Install the `gpu` extra, which brings it, or set CANDOR_PROVIDER=cpu.",
            ) from error
        self._session = session
        self._calibrator = session.open_beside(calibrator_model(calibrator, session.classes))
        self._bound = [self._bind(stage) for stage in session.stages]
        self.calibrate_ns = 0
        self._check(calibrator)

    def run(self, inputs: npt.NDArray[Any]) -> Scores:
        with self._session.on_device(inputs) as (number, stage):
            binding, probabilities = self._bound[number]
            began = time.perf_counter_ns()
            self._calibrator.run_with_iobinding(binding)
            self.calibrate_ns += time.perf_counter_ns() - began
            rows = len(inputs)
            return rows_of(stage.logits, rows), rows_of(probabilities, rows)

    def _check(self, calibrator: Calibrator) -> None:
        """Run every size once, so that no request waits for it, and see that the graph does what the calibrator does.

        On other rows than those whose logits were there when the buffers were bound: where ONNX Runtime puts the first
        step on the CPU, it copies the graph's input over when that is bound, and never again.
        """
        rows = self._session.sample[::-1]
        apart = []
        for stage in self._session.stages:
            logits, probabilities = self.run(rows[: stage.size])
            apart.append(np.abs(probabilities - calibrator.predict_proba(logits)).max(axis=1))
        # Of most rows: at a step of the map the last bit of a logit decides.
        typical = float(np.median(np.concatenate(apart)))
        if not typical <= _TOLERANCE:
            raise RevisionStateError(
                "The calibrator's graph gives other probabilities on this device than the calibrator.",
                where="calibrator",
                found=f"{typical:.3g} between them, in the median of {len(np.concatenate(apart))} rows",
                expected=f"at most {_TOLERANCE:g}",
                remedy="Set CANDOR_PROVIDER=cpu, or try another version of ONNX Runtime.",
            )

    def _bind(self, stage: Stage) -> tuple[Any, ort.OrtValue]:
        probabilities = ort.OrtValue.ortvalue_from_shape_and_type(
            stage.logits.shape(), np.float32, self._session.provider, 0
        )
        binding = self._calibrator.io_binding()
        binding.bind_ortvalue_input("logits", stage.logits)
        binding.bind_ortvalue_output("probabilities", probabilities)
        return binding, probabilities
