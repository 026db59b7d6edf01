"""Read passwords and secrets from files, to keep them out of the environment and command lines."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from service.errors import ConfigurationError

WHERE = "CANDOR_DATABASE_PASSWORD_FILE"
_WEBHOOK: Final = "CANDOR_WEBHOOK_SECRET_FILE"
_LEAST_SECRET: Final = 32
_MOST_SECRETS: Final = 4


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


def secrets_of(file: Path | None, purpose: str = "CANDOR_WEBHOOK_URL") -> tuple[str, ...]:
    """Return the secrets of a webhook: one in a line, the current one first, older ones while they are rotated.

    Args:
        file: The file.
        purpose: Setting that requires one.

    Raises:
        ConfigurationError: The file is missing or cannot be read, or a secret is too short.
    """
    expected = f"one secret of {_LEAST_SECRET} characters or more in a line, at most {_MOST_SECRETS}"
    if file is None:
        raise ConfigurationError(f"{purpose} requires a secret.", where=_WEBHOOK, found="nothing", expected=expected)
    text = read_secret(file, "webhook's secret", where=_WEBHOOK)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not 1 <= len(lines) <= _MOST_SECRETS or min(map(len, lines)) < _LEAST_SECRET:
        found = f"{len(lines)} lines" + (f", the shortest of {min(map(len, lines))} characters" if lines else "")
        remedy = f"openssl rand -hex 32 > {file}"
        raise ConfigurationError(
            f"{file} is not a file of secrets.", where=_WEBHOOK, found=found, expected=expected, remedy=remedy
        )
    return tuple(lines)
