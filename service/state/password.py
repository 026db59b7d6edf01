"""The database's password from a file, so that it stands in no environment and on no command line."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from service.errors import ConfigurationError

WHERE = "CANDOR_DATABASE_PASSWORD_FILE"


def with_password(url: str, file: Path) -> str:
    """Return the URL with the password that a file holds; the newline at the file's end is not part of it.

    Raises:
        ConfigurationError: The file cannot be read or holds no password, or the URL is not one of PostgreSQL.
    """
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except ArgumentError:
        backend = "no URL"
    if backend != "postgresql":
        raise ConfigurationError(
            "Only PostgreSQL has a password.",
            where=WHERE,
            found=f"CANDOR_DATABASE_URL with {backend}",
            expected="postgresql://user@host/name",
            remedy=f"Unset {WHERE}, or set CANDOR_DATABASE_URL.",
        )
    try:
        password = file.read_bytes().decode().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(
            f"The database's password cannot be read from {file}: {reason}.",
            where=WHERE,
            remedy="The user that the service runs as must be able to read the file.",
        ) from error
    if not password or "\0" in password or "\n" in password:
        raise ConfigurationError(
            f"{file} does not hold one line with the database's password.",
            where=WHERE,
            found="nothing" if not password else "more than one line",
            expected="the password alone",
        )
    return parsed.set(password=password).render_as_string(hide_password=False)
