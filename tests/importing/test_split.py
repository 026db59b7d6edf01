"""Parts are disjoint, complete, true to groups, and in the order of time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from importing.errors import RowsError
from importing.split import SHARES, group_numbers, split
from tests.importing.validation_rows import table

N = 4_000


def columns(**more: Any) -> dict[str, Any]:
    return {"a": range(N), "y": [row % 2 for row in range(N)], **more}


def test_parts_are_disjoint_complete_and_as_large_as_their_shares(tmp_path: Path) -> None:
    rows = table(tmp_path, columns())
    parts = split(rows, seed=1)
    assert list(parts) == ["fit", "certify", "gate"]
    assert np.array_equal(np.sort(np.concatenate(list(parts.values()))), np.arange(N))
    for share, part in zip(SHARES, parts.values(), strict=True):
        assert abs(len(part) / N - share) < 4 * np.sqrt(share * (1 - share) / N)
        assert np.array_equal(part, np.sort(part))
        assert part.dtype == np.int64


def test_a_seed_gives_one_split_and_another_seed_another(tmp_path: Path) -> None:
    rows = table(tmp_path, columns())
    fit = split(rows, seed=1)["fit"]
    assert np.array_equal(fit, split(rows, seed=1)["fit"])
    assert not np.array_equal(fit, split(rows, seed=2)["fit"])


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**64), groups=st.integers(400, 900))
def test_all_rows_of_a_group_are_in_one_part(tmp_path: Path, seed: int, groups: int) -> None:
    rows = table(tmp_path, columns(card=[f"c{row * 7919 % groups}" for row in range(N)]), group="card")
    assert rows.group is not None
    sets = [set(rows.group[part].tolist()) for part in split(rows, seed=seed).values()]
    assert sum(map(len, sets)) == len(set.union(*sets)) == groups


def test_equal_rows_without_a_group_are_in_one_part(tmp_path: Path) -> None:
    values = [row % 1000 for row in range(N)]
    for cells in (values, [f"t{value}" for value in values]):
        rows = table(tmp_path, {"a": cells, "b": cells, "y": [row // 2000 for row in range(N)]})
        sets = [set(rows.features["a"][part].tolist()) for part in split(rows, seed=3).values()]
        assert sum(map(len, sets)) == 1000


def test_rows_with_equal_scores_are_not_one_group(tmp_path: Path) -> None:
    scores = [row % 3 / 2 for row in range(N)]
    rows = table(tmp_path, {"score": scores, "y": [row // 7 % 2 for row in range(N)]}, scores=["score"])
    parts = split(rows, seed=3)
    assert rows.scores is not None
    assert all(len(np.unique(rows.scores[part])) == 3 for part in parts.values())
    assert len(np.unique(group_numbers(rows, 3))) == N


def test_rows_without_a_group_do_not_share_one(tmp_path: Path) -> None:
    cards = ["" if row % 2 else "c" for row in range(N)]
    rows = table(tmp_path, columns(card=cards), group="card")
    assert len(np.unique(group_numbers(rows, 0))) == N // 2 + 1


def test_the_order_of_time_holds_within_parts(tmp_path: Path) -> None:
    when = np.random.default_rng(0).integers(1.5e9, 1.7e9, N)
    rows = table(tmp_path, columns(when=when), time="when")
    assert rows.time is not None
    for part in split(rows, seed=1).values():
        assert (np.diff(rows.time[part]) >= 0).all()


def test_a_column_decides(tmp_path: Path) -> None:
    names = [("certify", "fit", "fit", "gate")[row // 2 % 4] for row in range(N)]
    rows = table(tmp_path, columns(part=names), part="part")
    parts = split(rows, seed=1)
    assert "part" not in rows.features
    assert {name: len(part) for name, part in parts.items()} == {"fit": 2000, "certify": 1000, "gate": 1000}
    assert all(names[row] == name for name, part in parts.items() for row in part)


def test_a_column_needs_no_gate_rows(tmp_path: Path) -> None:
    rows = table(tmp_path, columns(part=["fit" if row < 2000 else "certify" for row in range(N)]), part="part")
    assert len(split(rows, seed=1)["gate"]) == 0


def test_a_column_with_another_name_is_refused(tmp_path: Path) -> None:
    rows = table(tmp_path, {"a": [1, 2, 3], "y": [0, 1, 0], "part": ["fit", "certify", "test"]}, part="part")
    with pytest.raises(RowsError, match=r"line 4: Unknown part\. Found: `test`\. Expected: fit, certify, gate"):
        split(rows, seed=1)


def test_a_column_that_tears_a_group_is_refused(tmp_path: Path) -> None:
    given_parts = {"a": [1, 2, 3], "g": "xyx", "y": [0, 1, 0], "part": ["fit", "fit", "certify"]}
    rows = table(tmp_path, given_parts, part="part", group="g")
    with pytest.raises(RowsError, match=r"line 4: The group `x` is in two parts\. Found: certify, and fit in line 2"):
        split(rows, seed=1)


def test_too_few_groups_are_refused(tmp_path: Path) -> None:
    rows = table(tmp_path, columns(g=[row // 2 % 2 for row in range(N)]), group="g")
    with pytest.raises(RowsError, match=r"Too few groups .* of 2 groups"):
        split(rows, seed=1)


def test_a_class_without_fit_rows_is_refused(tmp_path: Path) -> None:
    labels = ["rare" if row == 17 else "usual" for row in range(N)]
    rows = table(tmp_path, {"a": range(N), "y": labels})
    seed = next(seed for seed in range(20) if 17 not in split_or_none(rows, seed))
    with pytest.raises(RowsError, match=r"The class `rare` has no fit rows\. Found: 1 row of it, none in the fit part"):
        split(rows, seed=seed)


def split_or_none(rows: Any, seed: int) -> Any:
    try:
        return split(rows, seed=seed)["fit"]
    except RowsError:
        return []


@pytest.mark.parametrize(
    "shares", [(0.5, 0.5), (0.5, 0.6, -0.1), (1.0, 0.0, 0.0), (0.3, 0.3, 0.3), (float("nan"), 0.5, 0.5)]
)
def test_shares_are_three_parts_of_one(tmp_path: Path, shares: Any) -> None:
    with pytest.raises(RowsError, match="The split is invalid"):
        split(table(tmp_path, columns()), shares, seed=1)
