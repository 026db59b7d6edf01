"""Counters of inference under the names of Triton, for dashboards and autoscalers that read those."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from service.inference.statistics import Statistics
from service.telemetry.run_metrics import Planes

_REVISIONS: Final = 4  # the newest of each model: as few as elsewhere
_US: Final = 1000.0  # ns

NAMES: Final = {
    "nv_inference_request_success": "Answered requests.",
    "nv_inference_request_failure": "Requests without an answer, without those that their client gave up.",
    "nv_inference_count": "Answered rows.",
    "nv_inference_exec_count": "Runs of the model.",
    "nv_inference_request_duration_us": "Time from the decoded input to the answer, in microseconds.",
    "nv_inference_queue_duration_us": "Time in the queue, in microseconds.",
    "nv_inference_compute_input_duration_us": "0: part of nv_inference_compute_infer_duration_us.",
    "nv_inference_compute_infer_duration_us": "Time in the model and its calibrator, in microseconds.",
    "nv_inference_compute_output_duration_us": "Time of decisions and of the hand-over to the log, in microseconds.",
}
"""Help by name."""


class TritonMetrics(Collector):
    """Counters by model and version, in the order of `NAMES`.

    Args:
        read: Returns the names and planes of models.
    """

    def __init__(self, read: Planes) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Return the metric families."""
        families = [Metric(name, text, "counter") for name, text in NAMES.items()]
        for model, plane in self._read():
            versions = {int(revision.removeprefix("r")): one for revision, one in list(plane.statistics.items())}
            for version in sorted(versions)[-_REVISIONS:]:
                labels = {"model": model, "version": str(version)}
                for family, value in zip(families, _values(versions[version]), strict=True):
                    family.add_sample(family.name, labels, value)
        return families


def _values(one: Statistics) -> tuple[float, ...]:
    durations = (one.success.ns, one.queue.ns, 0, one.infer.ns, one.finish.ns)
    return one.success.count, one.failure.count, one.rows, one.runs, *(ns / _US for ns in durations)
