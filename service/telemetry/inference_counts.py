"""Statistics of revisions over all processes of the service: written as a snapshot, added up, and read back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from service.inference.statistics import Statistics, Tally
from service.serving.labels import LabelsPlane
from service.serving.plane import Plane
from service.sums import Snapshot

_COUNTS: Final = "candor_statistics"
_LAST: Final = "candor_statistics_last_ms"
_TALLIES: Final = ("success", "failure", "queue", "infer", "finish")


def inference_counts(planes: Iterable[tuple[str, Plane | LabelsPlane]]) -> Snapshot:
    """Return the statistics of this process; see `service.sums`."""
    counts: list[list[Any]] = []
    last: list[list[Any]] = []
    for model, plane in planes:
        for revision, one in list(plane.statistics.items()):
            labels = [["model", model], ["revision", revision]]
            last.append([_LAST, labels, one.last_at_ms])
            counts += [["rows", labels, one.rows], ["runs", labels, one.runs]]
            tallies = [(name, labels, getattr(one, name)) for name in _TALLIES]
            tallies += [("batches", [*labels, ["rows", str(rows)]], tally) for rows, tally in one.batches.items()]
            for name, of, tally in tallies:
                counts += [[f"{name}.count", of, tally.count], [f"{name}.ns", of, tally.ns]]
    return [[_COUNTS, "counter", "", counts], [_LAST, "gauge", "", last]]


def statistics_in(snapshot: Snapshot) -> dict[tuple[str, str], Statistics]:
    """Return the statistics of a snapshot by model and revision."""
    found: defaultdict[tuple[str, str], Statistics] = defaultdict(Statistics)
    for _, _, _, samples in snapshot:
        for name, labels, value in samples:
            of = dict(labels)
            one = found[of["model"], of["revision"]]
            field, _, part = name.partition(".")
            if name == _LAST:
                one.last_at_ms = int(value)
            elif not part:
                setattr(one, field, int(value))
            else:
                tally = one.batches.setdefault(int(of["rows"]), Tally()) if "rows" in of else getattr(one, field)
                setattr(tally, part, int(value))
    return dict(found)
