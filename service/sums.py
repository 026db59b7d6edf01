"""Metrics of several processes as those of one: counts add up, states are those of the worst.

A snapshot is a list of families `[name, type, help, [[sample, [[label, value], …], number], …]]`, so JSON-able.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from service.others import Answer

Snapshot = list[list[Any]]

# Of gauges; counters and histograms add up.
RULES: Final[dict[str, Callable[[float, float], float]]] = {
    "candor_background": max,
    "candor_base_rate": max,
    "candor_build_info": max,
    "candor_bundles_listed": min,
    "candor_bundles_refused": max,
    "candor_calibration_alarm": max,
    "candor_class_calibration_alarm": max,
    "candor_cases_claimed": max,
    "candor_cases_oldest_seconds": max,
    "candor_cases_overdue": max,
    "candor_cases_waiting": max,
    "candor_certificate_valid": min,
    "candor_challenger_queue_rows": float.__add__,
    "candor_column_drift_alarm": max,
    "candor_column_psi": max,
    "candor_deadline_seconds": max,
    "candor_epoch": min,
    "candor_estimated_accuracy": max,
    "candor_labelled_accuracy": max,
    "candor_log_capacity_rows": float.__add__,
    "candor_log_depth": float.__add__,
    "candor_mean_confidence": max,
    "candor_model_ready": min,
    "candor_monitor_evidence": max,
    "candor_queue_capacity_rows": float.__add__,
    "candor_queue_rows": float.__add__,
    "candor_ready": min,
    "candor_revision_info": max,
    "candor_state_bytes": max,
    "candor_state_free_bytes": min,
    "candor_state_notices": min,
    "candor_state_stale_seconds": max,
    "candor_statistics_last_ms": max,
    "candor_upstream_changed": max,
    "candor_workers": max,
    "candor_workers_ready": max,
    "process_max_fds": min,
    "process_open_fds": float.__add__,
    "process_resident_memory_bytes": float.__add__,
    "process_start_time_seconds": min,
    "process_virtual_memory_bytes": float.__add__,
}
"""How the values of several processes become one. What only one process measures has that one's value either way."""


def summed(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Return the metrics of all processes together.

    Example:
        >>> one = [["candor_hits", "counter", "Hits.", [["candor_hits_total", [["model", "digits"]], 2.0]]]]
        >>> summed([one, one])[0][3]
        [['candor_hits_total', [['model', 'digits']], 4.0]]
    """
    families: dict[str, tuple[str, str, dict[tuple[Any, ...], float]]] = {}
    for snapshot in snapshots:
        for name, kind, text, samples in snapshot:
            _, _, values = families.setdefault(name, (kind, text, {}))
            add = RULES.get(name, max) if kind == "gauge" else float.__add__
            for sample, labels, value in samples:
                key = sample, *map(tuple, labels)
                values[key] = add(values[key], float(value)) if key in values else float(value)
    return [
        [name, kind, text, [[key[0], [list(label) for label in key[1:]], value] for key, value in values.items()]]
        for name, (kind, text, values) in families.items()
    ]


def together(answers: Iterable[Answer]) -> Snapshot:
    """Return the sum of the snapshots that were answered."""
    return summed(answer.value for answer in answers if answer.value is not None)


def value_of(snapshot: Snapshot, name: str, **labels: str) -> float:
    """Return the sum of the samples called `name` that carry these labels; 0 without any."""
    return sum(value for found, value in samples_of(snapshot, name) if labels.items() <= found.items())


def samples_of(snapshot: Snapshot, name: str) -> Iterator[tuple[dict[str, str], float]]:
    """Yield labels and value of the samples called `name`."""
    for _, _, _, samples in snapshot:
        for sample, labels, value in samples:
            if sample == name:
                yield dict(labels), value


def counted(snapshot: Snapshot) -> Snapshot:
    """Return the counters and histograms of a snapshot: what stays true after the end of its process."""
    return [family for family in snapshot if family[1] != "gauge"]
