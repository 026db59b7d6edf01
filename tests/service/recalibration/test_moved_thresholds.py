"""What the simulator tries: thresholds elsewhere, without solving anything."""

from __future__ import annotations

import pytest

from candor.contract.certificates import SolvedBand, Threshold
from service.decisions.calibrated import Calibrated
from service.decisions.policy import parse_policy
from service.decisions.solved import SolvedPolicy
from service.errors import InputValueError
from service.operations.simulation import moved, spread
from service.state.recent import load_recent_rows
from service.state.window import Window
from tests.service.conftest import Digits, InThread

BANDS = [{"action": "accept", "when": {"min_precision": 0.95}}, {"action": "block", "when": {"min_probability": 0.3}}]
POLICY = parse_policy({"id": "p", "bands": [*BANDS, {"action": "allow"}]})
SOLVED = SolvedPolicy(
    POLICY,
    3,
    (
        SolvedBand(action="accept", threshold=None, certificate=None),
        SolvedBand(action="block", threshold=Threshold.at(0.3, -1.0), certificate=None),
        SolvedBand(action="allow", threshold=None, certificate=None),
    ),
    review_all=True,
)


def test_what_is_named_moves_and_the_rest_stays() -> None:
    tried = moved(SOLVED, {0: 0.9})
    assert tried.bands[0].threshold == Threshold.at(0.8999999761581421, float("-inf"))
    assert tried.bands[1:] == SOLVED.bands[1:]
    assert not tried.review_all
    assert moved(SOLVED, {}) is SOLVED


@pytest.mark.parametrize("band", [2, 3, -1])
def test_a_band_that_cannot_move_is_refused(band: int) -> None:
    with pytest.raises(InputValueError):
        moved(SOLVED, {band: 0.5})


def test_every_row_is_in_one_bin(service: InThread, digits: Digits) -> None:
    service.teach(digits.images[:60], digits.labels[:60])
    service.predict(digits.images[60:80], policy="auto-read")
    assert service.runtime.log.flush()
    served = service.runtime.models.get("digits").served
    window = Window("digits", served.revision.model_digest)
    with service.runtime.database.connect() as connection:
        rows = load_recent_rows(connection, window, label_names=served.labels, at_most=1000)
    seen = Calibrated.of(served.calibrator, served.labels, rows)
    counts = spread(seen, served.policies["auto-read"], bins=10)
    assert sum(map(sum, counts.values())) == 80
    assert sum(counts["unknown"]) == 20
    assert len(counts["positive"]) == 10
