"""Large matrices are read in threads: each row once, the first error first, as many threads as allowed."""

import threading

import numpy as np
import pytest

from calibrators import threads
from calibrators.errors import CalibrationDataError
from calibrators.metrics import expected_calibration_error
from calibrators.metrics.rows import top_labels


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_LARGE", 1)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: range(3), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(("limit", "expected"), [(None, 3), ("1", 1), ("2", 2), ("64", 3), ("0", 1), ("2,1", 3)])
def test_each_row_is_read_once_in_as_many_threads_as_allowed(
    limit: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
    reached, seen, found = threading.Barrier(expected), np.zeros(1_001, np.int64), set[int]()

    def work(span: range) -> None:
        reached.wait(60)  # all threads work at once
        seen[span.start : span.stop] += 1
        found.add(threading.get_ident())

    threads.by_rows(1_001, 10, work)
    assert (seen == 1).all()
    assert len(found) == expected


def test_results_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    probabilities, labels = rng.dirichlet(np.ones(40), 3_001).astype(np.float32), rng.integers(0, 40, 3_001)
    several = top_labels(probabilities, labels), expected_calibration_error(probabilities, labels)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    one = top_labels(probabilities, labels), expected_calibration_error(probabilities, labels)
    np.testing.assert_array_equal(several[0].confidence, one[0].confidence)
    np.testing.assert_array_equal(several[0].correct, one[0].correct)
    assert several[1] == one[1]


def test_the_first_bad_row_is_named() -> None:
    probabilities = np.full((3_000, 4), 0.25)
    probabilities[[100, 1_500, 2_999], 2] = np.nan
    with pytest.raises(CalibrationDataError, match=r"probabilities\[100, 2\]"):
        top_labels(probabilities, np.zeros(3_000, np.int64))
