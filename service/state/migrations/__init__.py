"""Brings a database to the newest schema, and says when it cannot.

Each file in `versions/` is one Alembic migration. They run through Alembic's library on the caller's connection, inside
the caller's transaction: a migration is there whole, or not at all.
"""

from __future__ import annotations

from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext, MigrationStep
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from alembic.util import CommandError
from sqlalchemy import Connection

from service.errors import ConfigurationError


def newest() -> str:
    """Return the name of the newest schema that this program knows."""
    return str(_scripts().get_current_head())


def current(connection: Connection) -> str | None:
    """Return the name of the schema that the database has, None for an empty one."""
    return MigrationContext.configure(connection).get_current_revision()


def upgrade(connection: Connection) -> None:
    """Run the migrations that the database lacks.

    Args:
        connection: Inside a write transaction that no other server shares.

    Raises:
        ConfigurationError: The database was written by a newer program.
    """
    scripts = _scripts()

    def missing(revision: str | tuple[str, ...], _context: MigrationContext) -> list[MigrationStep]:
        steps = list(scripts.iterate_revisions("head", revision or "base"))
        return [MigrationStep.upgrade_from_script(scripts.revision_map, step) for step in reversed(steps)]

    context = MigrationContext.configure(connection, opts={"fn": missing})
    try:
        with Operations.context(context):
            context.run_migrations()
    except (CommandError, ResolutionError) as error:
        raise ConfigurationError(
            "The state database was written by a newer Candor than this one.",
            found=f"schema {current(connection)}",
            expected=f"schema {newest()} or older",
            remedy="Run the newer Candor, or restore the copy of the database that was made before the update.",
        ) from error


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(Path(__file__).parent))
