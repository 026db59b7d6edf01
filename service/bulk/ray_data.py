"""Score parts on a Ray cluster: one task cuts the files, actors on all nodes score the parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from service.bulk.inputs import Part, Source, cut
from service.bulk.manifest import Done
from service.bulk.worker import Task, Worker
from service.inference.cluster import cluster

_CUTTING_CPUS = 0.5  # other than of scoring, so that Ray does not do both in one process


class Scorer:
    """An actor that scores one part at a time.

    Args:
        task: The run.
        found: Columns of the files.
        folder: Working directory, below which relative paths are.
    """

    def __init__(self, task: Task, found: Sequence[str], folder: str) -> None:
        os.chdir(folder)
        self._worker = Worker(task, found)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Score parts and return what is done as JSON."""
        done = (self._worker.score(part, name) for part, name in batch["item"])
        return {"item": [orjson.dumps(asdict(each)) for each in done]}


def score_on_ray(
    address: str,
    task: Task,
    found: Sequence[str],
    sources: Sequence[Source],
    rows: int,
    skipped: Collection[int],
    processes: int | None,
    finished: Callable[[Done], None],
) -> None:
    """Score the parts of files with Ray Data. Every node must reach input, output, bundles and state.

    Args:
        address: Address of the cluster, `auto` for the one of this machine.
        task: The run.
        found: Columns of the files.
        sources: The files.
        rows: Maximum rows per part.
        skipped: Numbers of parts that are done.
        processes: Maximum number of actors; None for one per CPU of the cluster.
        finished: Called with each finished part, in the order of their ends.

    Raises:
        ConfigurationError: Ray is not installed, or no cluster answers.
        CandorError: A part cannot be scored.
    """
    with cluster(address, "--ray", remedy="Go on with --resume.") as ray:
        from ray.data import ActorPoolStrategy, DataContext

        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.target_max_block_size = 1  # each part is a block of its own, for the next free actor

        folder = os.getcwd()  # noqa: PTH109 — a text, for every node

        def parts(_: Any) -> Iterator[dict[str, list[tuple[Part, str]]]]:
            os.chdir(folder)
            for item in cut(sources, rows):
                if item[0].number not in skipped:
                    yield {"item": [item]}

        most = processes or max(1, int(ray.cluster_resources().get("CPU", 1)))
        scored = (
            ray.data.range(1)
            .map_batches(parts, num_cpus=_CUTTING_CPUS)
            .map_batches(
                Scorer,
                fn_constructor_args=(task, tuple(found), folder),
                batch_size=1,
                num_cpus=1,
                compute=ActorPoolStrategy(min_size=1, max_size=most),
            )
        )
        for row in scored.iter_rows():
            finished(Done(**orjson.loads(row["item"])))
