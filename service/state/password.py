"""Read the database's password from a file, to keep it out of the environment and command lines."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from service.errors import ConfigurationError

WHERE = "CANDOR_DATABASE_PASSWORD_FILE"


def with_password(url: str, file: Path) -> str:
    """Return the URL with the password from a file, without the file's final newline.

    Raises:
        ConfigurationError: The file cannot be read or does not contain a password, or the URL is not a PostgreSQL URL.
    """
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except ArgumentError:
        backend = "no URL"
    if backend != "postgresql":
        raise ConfigurationError(
            "Only PostgreSQL uses a password.",
            where=WHERE,
            found=f"CANDOR_DATABASE_URL with {backend}",
            expected="postgresql://user@host/name",
            remedy=f"Unset {WHERE}, or set CANDOR_DATABASE_URL.",
        )
    password = read_secret(file, "database's password", where=WHERE).removesuffix("\n").removesuffix("\r")
    if not password or "\0" in password or "\n" in password:
        raise ConfigurationError(
            f"{file} must contain one line with the database's password.",
            where=WHERE,
            found="nothing" if not password else "more than one line",
            expected="the password alone",
        )
    return parsed.set(password=password).render_as_string(hide_password=False)


def read_secret(file: Path, name: str, *, where: str) -> str:
    """Return the text of a file that holds a secret.

    Args:
        file: The file.
        name: Name of the secret in the message of an error.
        where: Setting that names the file.

    Raises:
        ConfigurationError: The file is missing, cannot be read, or is not UTF-8.
    """
    try:
        return file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(
            f"The {name} cannot be read from {file}: {reason}.",
            where=where,
            remedy="Grant the service's user read access to the file.",
        ) from error
