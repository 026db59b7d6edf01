"""Update a database to the newest schema.

Each file in `migrations/versions/` is one Alembic migration, named after its schema. They run through Alembic's library
on the caller's connection, inside the caller's transaction: a migration is there whole, or not at all. PostgreSQL
commits before those that build an index beside the transaction, which has to see what came before. Alembic takes
longer to import than all of the state, so that only a database that lacks a migration does so.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, column, inspect, select, table

from service.errors import ConfigurationError
from service.state import audit_chain

_FOLDER = Path(__file__).with_name("migrations")
_CHAINED = "0022"  # links of the audit log
_BESIDE = {"0026", "0027"}  # on PostgreSQL, each in a transaction of its own
_APPLIED = table("alembic_version", column("version_num"))


def newest() -> str:
    """Return the name of the newest schema that this program knows."""
    return max(file.name.partition("_")[0] for file in (_FOLDER / "versions").glob("[0-9]*_*.py"))


def current(connection: Connection) -> str | None:
    """Return the name of the database's schema; None for an empty database."""
    if not inspect(connection).has_table(_APPLIED.name):
        return None
    return connection.execute(select(_APPLIED.c.version_num)).scalar_one_or_none()


def upgrade(connection: Connection) -> bool:
    """Run the migrations that the database lacks, on PostgreSQL maybe only the first ones.

    Returns:
        Whether the schema is the newest: if not, commit, and continue in another transaction.

    Args:
        connection: Inside a write transaction that no other server shares.

    Raises:
        ConfigurationError: The database was written by a newer program.
    """
    before = current(connection)
    if before == newest():
        return True

    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext, MigrationStep
    from alembic.script import ScriptDirectory
    from alembic.script.revision import ResolutionError
    from alembic.util import CommandError

    scripts = ScriptDirectory(str(_FOLDER))

    def missing(revision: str | tuple[str, ...], _context: MigrationContext) -> list[MigrationStep]:
        steps = list(scripts.iterate_revisions("head", revision or "base"))
        steps.reverse()
        if before is not None and connection.dialect.name == "postgresql":  # nobody writes to an empty database
            ends = [place for place, step in enumerate(steps) if place and step.revision in _BESIDE]
            del steps[min(ends, default=len(steps)) :]
        return [MigrationStep.upgrade_from_script(scripts.revision_map, step) for step in steps]

    context = MigrationContext.configure(connection, opts={"fn": missing})
    try:
        with Operations.context(context):
            context.run_migrations()
        if before is not None and before < _CHAINED:
            audit_chain.chain_all(connection)
    except (CommandError, ResolutionError) as error:
        raise newer_state(before) from error
    return current(connection) == newest()


def newer_state(schema: str | None) -> ConfigurationError:
    """Return the error of a database that a newer program wrote."""
    return ConfigurationError(
        "The state database was written by a newer version of Candor.",
        found=f"schema {schema}",
        expected=f"schema {newest()} or older",
        remedy="Run the newer version, or restore the copy of the database from before the update.",
    )
