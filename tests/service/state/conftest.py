"""One set of tests, two databases: SQLite always, PostgreSQL wherever one answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from service.state.database import Database
from service.state.prediction_rows import PredictionBatch
from service.state.predictions import PredictionLog
from service.state.tables import metadata

DIGEST = "9f2c" * 16
LABELS = ("cat", "dog", "eel")
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without any table; whatever the test makes of it is gone afterwards."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/state.db"
        return
    address: str = request.getfixturevalue("postgres_url")
    drop_tables(address)
    yield address
    drop_tables(address)


def drop_tables(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, migrated: Path) -> str:
    """The URL of a database without any row, but with its tables, since making them takes long."""
    if request.param == "sqlite":
        shutil.copy(migrated, tmp_path / "state.db")
        return f"sqlite:///{tmp_path}/state.db"
    address: str = request.getfixturevalue("postgres_url")
    with psycopg.connect(address, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass('public.audit')").fetchone() != (None,):
            tables = "; ".join(f"DELETE FROM {table.name}" for table in metadata.sorted_tables)
            connection.execute(f"SET session_replication_role = replica; {tables}")  # replica: triggers stay silent
    return address


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    opened = Database.open(url)
    yield opened
    opened.close()


@pytest.fixture
def other(database: Database, url: str) -> Iterator[Database]:
    """A second server's view of the same state; on SQLite, where only one may be, the same server's."""
    if url.startswith("sqlite"):
        yield database
    else:
        opened = Database.open(url)
        yield opened
        opened.close()


@pytest.fixture
def log(database: Database) -> Iterator[PredictionLog]:
    opened = PredictionLog(database, commit_interval_s=0.001)
    yield opened
    opened.close()


def prediction_id(number: int) -> str:
    """A prediction id that sorts by number."""
    digits = []
    for _ in range(20):
        number, digit = divmod(number, 32)
        digits.append(CROCKFORD[digit])
    return "01J000" + "".join(reversed(digits))


def batch(ids: list[str], **changes: object) -> PredictionBatch:
    """Predictions with logits that tell rows apart; every field can be given."""
    n = len(ids)
    logits = np.arange(n * len(LABELS), dtype=np.float32).reshape(n, len(LABELS)) / 7
    fields: dict[str, object] = {
        "model": "pets",
        "model_digest": DIGEST,
        "revision": "r1",
        "policy": "auto@1",
        "created_at": 1_000,
        "ids": ids,
        "references": [None] * n,
        "groups": [None] * n,
        "inputs": np.arange(n * 4, dtype=np.uint8).reshape(n, 4),
        "logits": logits,
        "labels": np.full(n, 2),
        "confidence": np.full(n, 0.75, dtype=np.float32),
        "actions": ["accept"] * n,
        "propensities": [1.0] * n,
        "sought": [True] * n,
    }
    return PredictionBatch(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def logged(log: PredictionLog) -> Callable[..., list[str]]:
    """Log predictions and wait until they are durable."""

    def write(ids: list[str], **changes: object) -> list[str]:
        assert log.append(batch(ids, **changes))
        assert log.flush()
        return ids

    return write
