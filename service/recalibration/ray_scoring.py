"""Score the stored inputs of a recalibration on a Ray cluster, with Ray Data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from bundle import Bundle
from service.errors import CandorError, error_document, error_from_document
from service.inference.cluster import cluster
from service.inference.offline import Scorer
from service.places import Place

_SETTING: Final = "CANDOR_REFIT_RAY"


@contextmanager
def cluster_scorer(address: str, bundle: Bundle, *, where: Place, run_timeout_s: float) -> Iterator[ClusterScorer]:
    """Connect to a cluster for the length of a block; see `ClusterScorer`.

    Raises:
        ConfigurationError: Ray is not installed, or no cluster answers.
    """
    with cluster(address, _SETTING, remedy="Recalibrate again, or unset CANDOR_REFIT_RAY.") as ray:
        yield ClusterScorer(ray, bundle, where, run_timeout_s)


class ClusterScorer:
    """Put inputs into the cluster's object store as they are read, and score all of them when none is left to read.

    Each actor runs the model as `Scorer` does here, on the same rows at a time: the logits have the same bits.

    Args:
        ray: The module, connected.
        bundle: The bundle; it is sent to the nodes.
        where: Field of the job request that named the rows, for errors.
        run_timeout_s: Maximum seconds of a run.
    """

    def __init__(self, ray: Any, bundle: Bundle, where: Place, run_timeout_s: float) -> None:
        self._ray = ray
        self._arguments = (ray.put(bundle), where, run_timeout_s)
        self._classes = len(bundle.manifest.labels)
        self._chunks: list[Any] = []
        self._ends: list[int] = []

    def add(self, inputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Take inputs (N, …), N ≥ 0; return their places, int64 (N,)."""
        first = self._ends[-1] if self._ends else 0
        if len(inputs):
            self._chunks.append(self._ray.put(inputs))
            self._ends.append(first + len(inputs))
        return np.arange(first, first + len(inputs))

    def finish(self, places: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return the logits (N, K) of places, int64 (N,), that `add` gave since the last call.

        Raises:
            CandorError: As a `Scorer` does; or the run on the cluster has failed.
        """
        logits = np.empty((self._ends[-1] if self._ends else 0, self._classes), np.float32)
        for number, found in self._scored() if self._chunks else ():
            logits[self._ends[number] - len(found) : self._ends[number]] = found
        self._chunks, self._ends = [], []
        whole: npt.NDArray[np.float32] = logits[places]
        return whole

    def _scored(self) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Yield number and logits of each chunk, in the order of their ends."""
        from ray.data import ActorPoolStrategy, DataContext

        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.target_max_block_size = 1  # each chunk is a block of its own, for the next free actor
        most = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        count = len(self._chunks)
        scored = self._ray.data.range(count, override_num_blocks=count).map_batches(
            _Actor,
            fn_constructor_args=(self._chunks, *self._arguments),
            batch_size=1,
            num_cpus=1,
            compute=ActorPoolStrategy(min_size=1, max_size=min(most, count)),
        )
        for row in scored.iter_rows():
            if row["error"]:
                raise error_from_document(orjson.loads(row["error"]))
            yield int(row["number"]), np.frombuffer(row["logits"], np.float32).reshape(-1, self._classes)


class _Actor:
    """Scores one chunk at a time."""

    def __init__(self, chunks: list[Any], bundle: Any, where: Place, run_timeout_s: float) -> None:
        import ray

        self._chunks, self._get = chunks, ray.get
        self._score = Scorer(ray.get(bundle), where=where, run_timeout_s=run_timeout_s)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        numbers = batch["id"]
        scored = [self._one(self._get(self._chunks[number])) for number in numbers]
        return {"number": numbers, "logits": [each[0] for each in scored], "error": [each[1] for each in scored]}

    def _one(self, inputs: npt.NDArray[Any]) -> tuple[bytes, bytes]:
        """Return logits, or an error: Ray hands on only the text of one that is raised."""
        try:
            return self._score(inputs).tobytes(), b""
        except CandorError as error:
            return b"", orjson.dumps(error_document(error))
