"""States that benchmarks write in bulk: their labels are found as those of requests are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.bulk import fill, fill_month
from service.state.database import Database
from service.state.labelled import load_labelled_rows
from service.state.window import Window
from tests.service.conftest import new_postgresql

DIGEST = "9f2c" * 16


@pytest.fixture
def postgresql() -> Iterator[Database]:
    for url in new_postgresql():
        opened = Database.open(url)
        yield opened
        opened.close()


def labelled(state: Database, classes: int) -> int:
    with state.connect() as connection:
        names = [str(label) for label in range(classes)]
        return len(load_labelled_rows(connection, Window("pets", DIGEST), label_names=names).rows)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_every_label_is_found_on_sqlite(share: float, tmp_path: Path) -> None:
    state = Database.open(f"sqlite:///{tmp_path}/state.db")
    fill(state, "pets", DIGEST, rows=60, classes=3, labelled=share)
    assert labelled(state, 3) == 60 * share
    state.close()


def test_every_label_is_found_on_postgresql(postgresql: Database) -> None:
    fill_month(postgresql, "pets", DIGEST, 12_000)
    assert labelled(postgresql, 2) == 120
