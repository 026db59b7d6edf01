import numpy as np

from service.decisions.sequence import BAND_POINTS, band, choose_in_band, choose_start, walk


def test_the_walk_stops_at_the_first_failure() -> None:
    n = np.array([[60, 80, 90, 300], [60, 80, 90, 300], [10, 80, 90, 300]])
    errors = np.array([[0, 0, 9, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert walk(n, errors, 0, 0.05, 0.05).tolist() == [1, 3, -1]
    assert walk(n, errors, 1, 0.05, 0.05).tolist() == [1, 3, 3]


def test_the_start_is_where_power_is_largest() -> None:
    expected = np.array([10.0, 100.0, 1000.0, 2000.0])
    errors, fit_rows = np.array([0.0, 2.0, 20.0, 200.0]), expected
    assert choose_start(expected, errors, fit_rows, 0.05, 0.05) == 2
    # Where no test can succeed the closest is reported.
    assert (
        choose_start(np.array([3.0, 30.0, 40.0]), np.array([0.0, 0.0, 20.0]), np.array([3.0, 30.0, 40.0]), 0.05, 0.05)
        == 1
    )


def test_the_band_spans_all_candidates() -> None:
    assert band(200).tolist() == sorted(set(band(200).tolist()))
    assert (band(200)[0], band(200)[-1], len(band(200))) == (0, 199, BAND_POINTS)
    assert set(band(3).tolist()) == {0, 1, 2}


def test_the_band_takes_the_boldest_success() -> None:
    n = np.full((3, 25), 400)
    errors = np.zeros((3, 25), dtype=np.int64)
    errors[0, 10:] = 100
    errors[1, :20] = 100
    errors[2] = 100
    assert choose_in_band(n, errors, 0.05, 0.05).tolist() == [9, 24, -1]
