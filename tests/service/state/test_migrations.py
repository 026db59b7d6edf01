"""The migrations make what the table objects describe."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, insert, text

from service.state import migrating, migrations
from service.state.database import Database
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.jobs import JobStore
from service.state.labelled import load_labelled_rows
from service.state.looks import SETS, record_look
from service.state.partitions import PARTITIONED, cover, parts_of
from service.state.predictions import PredictionLog
from service.state.revisions import RevisionStore
from service.state.tables import metadata, revisions
from service.state.unlabelled import load_unlabelled_rows
from service.state.window import Window

from .conftest import DIGEST, LABELS, batch, prediction_id


@pytest.mark.filterwarnings("ignore:.*expression-based index .?feedback_of_model")
def test_the_tables_are_those_that_the_queries_believe_in(empty_url: str) -> None:
    database = Database.open(empty_url)
    with database.connect() as connection:
        partitions = connection.dialect.name == "postgresql" and {
            part.name for table in PARTITIONED for part in parts_of(connection, table)
        }

        def compared(found: Any, name: str | None, kind: str, *_: object) -> bool:
            if partitions and kind == "foreign_key_constraint":
                return name != "predictions_origin"  # SQLite's alone
            return not partitions or (name if kind == "table" else found.table.name) not in partitions

        context = MigrationContext.configure(connection, opts={"compare_type": True, "include_object": compared})
        assert compare_metadata(context, metadata) == []
    database.close()


def test_an_upgrade_of_the_newest_schema_changes_nothing(database: Database) -> None:
    with database.begin() as connection:
        assert migrating.current(connection) == migrating.newest()
        migrating.upgrade(connection)
        assert migrating.current(connection) == migrating.newest()


def test_the_newest_schema_is_the_one_that_no_migration_follows() -> None:
    assert migrating.newest() == ScriptDirectory(migrations.__path__[0]).get_current_head()


def test_only_a_database_that_lacks_a_migration_imports_alembic(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "alembic.operations", None)
        with pytest.raises(ImportError):
            Database.open(empty_url)
    Database.open(empty_url).close()
    monkeypatch.setitem(sys.modules, "alembic.operations", None)
    Database.open(empty_url).close()


def open_at(url: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Open a database with an older program, so to say: one that knows no schema beyond `schema`."""
    with monkeypatch.context() as patch:
        patch.setattr(migrating, "newest", lambda: schema)
        real = ScriptDirectory.iterate_revisions

        def known(scripts: ScriptDirectory, _: str, lower: str) -> Iterator[Script]:
            return real(scripts, schema, lower)

        patch.setattr(ScriptDirectory, "iterate_revisions", known)
        return Database.open(url)


def test_predictions_from_before_segments_have_none_and_later_ones_may(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = open_at(empty_url, "0003", monkeypatch)
    before, after = prediction_id(1), prediction_id(2)
    origin = "INSERT INTO origins (model, model_digest, revision, policy) VALUES ('pets', :digest, 'r1', 'auto@1')"
    row = (
        "INSERT INTO predictions (id, origin, created_at, cluster, logits, label, confidence, action, propensity, "
        "sought) VALUES (:id, (SELECT id FROM origins), 5, 7, :logits, 1, 0.5, 'review', 1.0, :sought)"
    )
    with old.begin() as connection:
        connection.execute(text(origin), {"digest": DIGEST})
        logits = np.zeros(len(LABELS), dtype="<f4").tobytes()
        connection.execute(text(row), {"id": before, "logits": logits, "sought": True})
    old.close()

    database = Database.open(empty_url)
    log = PredictionLog(database, commit_interval_s=0.001)
    assert log.append(batch([after], segments=["DE"]))
    log.close()
    store = FeedbackStore(database)
    window = Window("pets", DIGEST)
    with database.connect() as connection:
        unlabelled = load_unlabelled_rows(connection, window, classes=len(LABELS))
    assert sorted(unlabelled.segment.tolist(), key=str) == ["DE", None]
    store.add("pets", [FeedbackItem(before, None, "cat"), FeedbackItem(after, None, "dog")], by="till")
    with database.connect() as connection:
        rows = load_labelled_rows(connection, window, label_names=LABELS).rows
    assert dict(zip(rows.id.astype(str).tolist(), rows.segment.tolist(), strict=True)) == {before: None, after: "DE"}
    database.close()


def test_a_database_of_the_first_schema_keeps_its_looks_versions_and_jobs(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = open_at(empty_url, "0001", monkeypatch)
    revision = (
        "INSERT INTO revisions VALUES ('pets', {0}, 'b', 1, 'd', '{{}}', "
        """'{{"auto": {{"version": {0}, "policy": {{"positive": "top"}}}}}}', """
        "NULL, 'policy', 'ops', 'not_run', 1, '{{}}')"
    )
    look = (
        'INSERT INTO exposures (model, model_digest, "rows", basis, scope, look, earliest_row, at) '
        "VALUES ('pets', 'd', '{}', 'reference', '{}', 1, 0, 5)"
    )
    job = (
        'INSERT INTO jobs (number, model, kind, state, request, "by", progress, created_at) '
        "VALUES (1, 'pets', 'recalibrate', 'running', '{}', 'ops', '', 1)"
    )
    with old.begin() as connection:
        for statement in (revision.format(1), revision.format(4), look.format("certify", "auto"), job):
            connection.execute(text(statement.replace(":", r"\:")))
    old.close()

    database = Database.open(empty_url)
    store = RevisionStore(database)
    assert store.new_policy_version("pets", "auto") == 5
    assert store.new_policy_version("pets", "other") == 1
    assert record_look(store._database, "pets", "d", "certify", "reference", "top", earliest_row_us=0, at=6).number == 2
    assert [found.starts for found in JobStore(database).unfinished()] == [0]
    item = FeedbackItem(None, "tx-1", "cat")
    assert FeedbackStore(database).add("pets", [item], by="till").stored == 1
    database.close()


def test_looks_at_sets_of_any_class_count_after_the_update(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = open_at(empty_url, "0035", monkeypatch)
    policies: dict[str, Any] = {
        "with": {"policy": {"positive": "cat", "set": {"coverage": 0.9}}},
        "without": {"policy": {"positive": "dog"}},
    }
    with old.begin() as connection:
        made = {"bundle_id": "b", "bundle_version": 1, "model_digest": "d", "calibrator": {}, "policies": policies}
        end = {"cause": "policy", "by": "ops", "gate": "not_run", "created_at": 1, "report": {}}
        connection.execute(insert(revisions).values(model="pets", number=1, **made, **end))
    for scope in ("cat", "cat", "dog"):
        record_look(old, "pets", "d", "certify", "traffic", scope, earliest_row_us=1, at=5, groups=np.arange(3))
    old.close()
    database = Database.open(empty_url)
    look = record_look(database, "pets", "d", "certify", "traffic", SETS, earliest_row_us=9, at=9, groups=np.arange(1))
    assert (look.number, look.spent) == (3, 3)
    database.close()


def test_the_index_of_labels_is_built_beside_the_migration_even_after_one_that_was_killed(
    empty_postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another connection builds it, so labels are written meanwhile; what a killed one left is built again."""
    open_at(empty_postgresql_url, "0025", monkeypatch).close()
    with psycopg.connect(empty_postgresql_url) as killed:
        killed.execute("CREATE INDEX feedback_of_model ON feedback (label)")
    real, built = Connection.exec_driver_sql, list[str]()

    def write() -> None:
        with psycopg.connect(empty_postgresql_url) as writer:
            writer.execute("SET lock_timeout = 100")
            writer.execute("LOCK feedback, feedback_batches IN ROW EXCLUSIVE MODE")  # as a request with labels

    def beside_a_writer(self: Connection, sql: str) -> Any:
        write()
        done = real(self, sql)
        write()
        built.extend(re.findall(r"CREATE INDEX CONCURRENTLY (\w+)", sql))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "exec_driver_sql", beside_a_writer)
        database = Database.open(empty_postgresql_url)
    assert built == ["feedback_by_batch", "feedback_of_model"]
    with database.connect() as connection:
        found = connection.execute(text("SELECT pg_get_indexdef('feedback_of_model'::regclass)")).scalar_one()
        valid = connection.execute(
            text("SELECT indisvalid FROM pg_index WHERE indexrelid = 'feedback_of_model'::regclass")
        ).scalar_one()
    database.close()
    assert "((model || ''::text)), by_reference, received_at)" in found
    assert valid is True


def test_the_index_of_groups_is_built_beside_the_migration_on_each_partition(
    empty_postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the whole table is made of theirs: the transaction scans no rows."""
    old = open_at(empty_postgresql_url, "0031", monkeypatch)
    with old.begin() as connection:
        parts = cover(connection, [19_000, 19_001])[-2:]  # of predictions
    old.close()
    real, built = Connection.exec_driver_sql, list[str]()

    def noted(self: Connection, sql: str) -> Any:
        built.extend(re.findall(r"CREATE INDEX CONCURRENTLY (\w+)", sql))
        return real(self, sql)

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "exec_driver_sql", noted)
        database = Database.open(empty_postgresql_url)
    assert {f"{part}_by_group" for part in parts} < set(built)
    attached = text(
        "SELECT inhrelid::regclass FROM pg_inherits JOIN pg_index ON indexrelid = inhrelid "
        "WHERE inhparent = 'predictions_by_group'::regclass AND indisvalid"
    )
    with database.connect() as connection:
        assert set(connection.execute(attached).scalars()) == set(built)
    database.close()


def test_each_schema_follows_the_one_before() -> None:
    steps = list(ScriptDirectory(str(migrating._FOLDER)).walk_revisions())
    names = sorted((step.revision for step in steps), reverse=True)
    assert [step.revision for step in steps] == names
    assert [step.down_revision for step in steps] == [*names[1:], None]
