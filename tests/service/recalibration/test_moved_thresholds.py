"""What the simulator tries: thresholds elsewhere, without solving anything."""

from __future__ import annotations

import numpy as np
import pytest

from calibrators import Identity
from candor.contract.certificates import SolvedBand, Threshold
from service.decisions.calibrated import Calibrated
from service.decisions.policy import parse_policy
from service.decisions.rows import Rows
from service.decisions.solved import SolvedPolicy
from service.errors import InputValueError
from service.operations.simulation import _outcome, moved, spread
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


def test_people_review_an_hour_of_rows_for_an_hour() -> None:
    rows = Rows(
        group=np.arange(3600),
        logits=np.zeros((3600, 2), np.float32),
        label=np.ones(3600, np.int64),
        predicted_at=np.arange(3600) * 1_000_000,
    )
    bands = [{"action": "review", "when": {"min_probability": 0.3}}, {"action": "allow"}]
    policy = parse_policy({"id": "p", "positive": "bad", "bands": bands, "review": {"max_per_day": 48}})
    cut = SolvedBand(action="review", threshold=Threshold.at(0.3, -1.0), certificate=None)
    rest = SolvedBand(action="allow", threshold=None, certificate=None)
    found = _outcome(
        Calibrated.of(Identity(), ("fine", "bad"), rows), SolvedPolicy(policy, 1, (cut, rest), review_all=False)
    )
    assert (found.actions, found.caught.value) == ({"review": 3600}, pytest.approx(2.0))


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
    assert sum(map(sum, (counts.positive, counts.negative, counts.unknown))) == 80
    assert sum(counts.unknown) == 20
    assert (len(counts.positive), len(counts.edges)) == (10, 11)
