"""Update a database to the newest schema.

Each file in `versions/` is one Alembic migration, named after its schema. They run through Alembic's library on the
caller's connection, inside the caller's transaction: a migration is there whole, or not at all. Alembic takes longer to
import than all of the state, so that only a database that lacks a migration does so.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, column, inspect, select, table

from service.errors import ConfigurationError

_FOLDER = Path(__file__).parent
_APPLIED = table("alembic_version", column("version_num"))


def newest() -> str:
    """Return the name of the newest schema that this program knows."""
    return max(file.name.partition("_")[0] for file in (_FOLDER / "versions").glob("[0-9]*_*.py"))


def current(connection: Connection) -> str | None:
    """Return the name of the database's schema; None for an empty database."""
    if not inspect(connection).has_table(_APPLIED.name):
        return None
    return connection.execute(select(_APPLIED.c.version_num)).scalar_one_or_none()


def upgrade(connection: Connection) -> None:
    """Run the migrations that the database lacks.

    Args:
        connection: Inside a write transaction that no other server shares.

    Raises:
        ConfigurationError: The database was written by a newer program.
    """
    if current(connection) == newest():
        return

    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext, MigrationStep
    from alembic.script import ScriptDirectory
    from alembic.script.revision import ResolutionError
    from alembic.util import CommandError

    scripts = ScriptDirectory(str(_FOLDER))

    def missing(revision: str | tuple[str, ...], _context: MigrationContext) -> list[MigrationStep]:
        steps = list(scripts.iterate_revisions("head", revision or "base"))
        return [MigrationStep.upgrade_from_script(scripts.revision_map, step) for step in reversed(steps)]

    context = MigrationContext.configure(connection, opts={"fn": missing})
    try:
        with Operations.context(context):
            context.run_migrations()
    except (CommandError, ResolutionError) as error:
        raise ConfigurationError(
            "The state database was written by a newer version of Candor.",
            found=f"schema {current(connection)}",
            expected=f"schema {newest()} or older",
            remedy="Run the newer version, or restore the copy of the database from before the update.",
        ) from error
