"""The migrations make what the table objects describe."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from service.state import migrations
from service.state.database import Database
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
