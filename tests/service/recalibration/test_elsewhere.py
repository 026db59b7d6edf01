"""What fit and certify rows show of regions without gate rows."""

from __future__ import annotations

import numpy as np
import pytest

from calibrators import CALIBRATORS
from service.decisions.gate import Potential, potential
from service.decisions.rows import Rows
from service.recalibration import elsewhere


def test_it_is_the_largest_of_all_rows_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "_ROWS_AT_ONCE", 7)
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (200, 4)).astype(np.float32)
    rows = Rows(logits=logits, group=rng.integers(-(2**63), 2**63 - 1, 60)[rng.integers(0, 60, 200)])
    labels = rng.integers(0, 4, 200)
    one, other = (CALIBRATORS[name]().fit(logits, labels) for name in ("temperature", "vector"))
    every = potential(one.predict_proba(logits), other.predict_proba(logits), rows.group)
    assert elsewhere.elsewhere(one, other, [rows]) == pytest.approx(every)
    nothing = rows.take(slice(0))
    assert elsewhere.elsewhere(one, other, [nothing, rows, rows]) == pytest.approx(every)
    assert elsewhere.elsewhere(one, one, [rows])[:2] == pytest.approx((0, 0), abs=1e-9)
    assert elsewhere.elsewhere(one, other, [nothing]) == Potential()
