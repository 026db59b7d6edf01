"""The migrations make what the table objects describe."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from service.state import migrations
from service.state.database import Database
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.jobs import JobStore
from service.state.revisions import RevisionStore
from service.state.tables import metadata


def test_the_tables_are_those_that_the_queries_believe_in(empty_url: str) -> None:
    database = Database.open(empty_url)
    with database.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    database.close()


def test_an_upgrade_of_the_newest_schema_changes_nothing(database: Database) -> None:
    with database.begin() as connection:
        assert migrations.current(connection) == migrations.newest()
        migrations.upgrade(connection)
        assert migrations.current(connection) == migrations.newest()


def test_a_database_of_the_first_schema_keeps_its_looks_versions_and_jobs(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ScriptDirectory, "get_current_head", lambda _: "0001")
        real = ScriptDirectory.iterate_revisions
        patch.setattr(ScriptDirectory, "iterate_revisions", lambda scripts, _, lower: real(scripts, "0001", lower))
        old = Database.open(empty_url)
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
    assert store.expose("pets", "d", "certify", "reference", "top", earliest_row_us=0, at=6) == 2
    assert [found.starts for found in JobStore(database).unfinished()] == [0]
    item = FeedbackItem(None, "tx-1", "cat")
    assert FeedbackStore(database).add("pets", [item], by="till").stored == 1
    database.close()
