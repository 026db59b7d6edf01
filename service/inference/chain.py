"""Model, then calibrator: a batch of inputs to logits and probabilities.

On a GPU both run there, as two sessions: the calibrator's is a small graph, made when its revision is loaded, whose
input is the very memory that the model wrote its logits to. On a CPU the calibrator itself is used
(docs/explanation/decisions/0005-calibrators-as-onnx-graphs.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from bundle.graph import ProbabilityError
from calibrators import CalibrationDataError, Calibrator
from service.errors import ConfigurationError, InputValueError, RevisionStateError
from service.inference.finite import check_logits, out_of_range
from service.inference.runtimes import Runtime
from service.inference.session import Session
from service.inference.stages import Stage, rows_of
from service.places import in_body

_TOLERANCE = 1e-4  # of probabilities; the graph computes in float64, as the calibrator does

Scores = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
WithInputs = Callable[[npt.NDArray[np.float32], npt.NDArray[Any]], npt.NDArray[np.float32]]


class Chain:
    """Run a model and its calibrator on the device of the model.

    Args:
        session: Model, shared with other chains.
        calibrator: Fitted for the classes of the model.
        with_inputs: Makes probabilities of logits and inputs instead, for a calibrator that reads both; on the CPU.

    Raises:
        ConfigurationError: The model is on a GPU, and the package `onnx` is not installed.
        RevisionStateError: The graph gives different probabilities than the calibrator.
    """

    def __init__(self, session: Runtime, calibrator: Calibrator, with_inputs: WithInputs | None = None) -> None:
        self._session = session
        self._calibrator = calibrator
        self._with_inputs = with_inputs
        self._graph: _Graph | None = None
        if isinstance(session, Session) and session.bound and with_inputs is None:
            self._graph = _Graph(session, calibrator)
        self._calibrate_ns = 0

    @property
    def calibrate_ns(self) -> int:
        """Nanoseconds of calibration in all runs."""
        return self._calibrate_ns if self._graph is None else self._graph.calibrate_ns

    def run(self, inputs: npt.NDArray[Any], *, first_row: int = 0, until_ns: int | None = None) -> Scores:
        """Return logits and probabilities, float32 (N, K) each, of a batch (N, …) in the bundle's input dtype.

        Args:
            inputs: The batch.
            first_row: Number of its first row in the request, for an error.
            until_ns: End of the time for it, see `Runtime.run`.

        Raises:
            UpstreamError: The server of a remote model gives no usable answer.
            UpstreamRejectedError: It cannot score these rows.
            InputValueError: The graph refuses a row.
            NonFiniteLogitsError: The model returns NaN, +∞ or only −∞ for a row, or no probability where
                it should.
        """
        if self._graph is None:
            try:
                logits = self._session.run(inputs, until_ns=until_ns)
            except ProbabilityError as error:
                raise out_of_range(error, first_row=first_row) from None
            except InputValueError as error:
                if error.row is not None:
                    error.place = in_body("inputs", first_row + error.row)
                raise
            began = time.perf_counter_ns()
            try:
                probabilities = (
                    self._calibrator.predict_proba(logits)
                    if self._with_inputs is None
                    else self._with_inputs(logits, inputs)
                )
            except CalibrationDataError:  # it checks every row anyway, so a second check costs only now
                check_logits(logits, first_row=first_row)
                raise
            self._calibrate_ns += time.perf_counter_ns() - began
            return logits, probabilities
        logits, probabilities = self._graph.run(inputs)
        check_logits(logits, first_row=first_row)  # a graph does not check
        return logits, probabilities


class _Graph:
    """The calibrator as a session on the device of the model, bound to the logits of each stage."""

    def __init__(self, session: Session, calibrator: Calibrator) -> None:
        try:
            from service.inference.onnx_graph import calibrator_model
        except ImportError as error:
            raise ConfigurationError(
                "Running a calibrator on the GPU requires the package `onnx`.",
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
        parts = [self._run(part) for part in self._session.parts(inputs)]
        if len(parts) == 1:
            return parts[0]
        logits, probabilities = zip(*parts, strict=True)
        return np.concatenate(logits), np.concatenate(probabilities)

    def _run(self, inputs: npt.NDArray[Any]) -> Scores:
        with self._session.on_device(inputs) as (number, stage):
            binding, probabilities = self._bound[number]
            began = time.perf_counter_ns()
            self._calibrator.run_with_iobinding(binding)
            self.calibrate_ns += time.perf_counter_ns() - began
            rows = len(inputs)
            return rows_of(stage.logits, rows), rows_of(probabilities, rows)

    def _check(self, calibrator: Calibrator) -> None:
        """Run every size once, so that no request waits for it, and compare the graph with the calibrator.

        On other rows than those whose logits were there when the buffers were bound: where ONNX Runtime puts the first
        step on the CPU, it copies the graph's input over when that is bound, and never again.
        """
        rows = self._session.sample[::-1]
        apart = []
        for stage in self._session.stages:
            logits, probabilities = self._run(rows[: stage.size])
            apart.append(np.abs(probabilities - calibrator.predict_proba(logits)).max(axis=1))
        # Most rows, not all: at a step of the map, the last bit of a logit decides.
        typical = float(np.median(np.concatenate(apart)))
        if not typical <= _TOLERANCE:
            raise RevisionStateError(
                "On this device, the graph of the calibrator gives different probabilities than the calibrator.",
                where="calibrator",
                found=f"{typical:.3g} between them, in the median of {len(np.concatenate(apart))} rows",
                expected=f"at most {_TOLERANCE:g}",
                remedy="Set CANDOR_PROVIDER=cpu, or try another version of ONNX Runtime.",
            )

    def _bind(self, stage: Stage) -> tuple[Any, ort.OrtValue]:
        probabilities = ort.OrtValue.ortvalue_from_shape_and_type(
            stage.logits.shape(), np.float32, self._session.device, 0
        )
        binding = self._calibrator.io_binding()
        binding.bind_ortvalue_input("logits", stage.logits)
        binding.bind_ortvalue_output("probabilities", probabilities)
        return binding, probabilities
