"""How PostgreSQL is reached: driver, and how long a server that does not answer is waited for."""

from __future__ import annotations

from sqlalchemy import URL, Engine, create_engine

from service.errors import ConfigurationError
from service.state.strict_json import strict_json

ANSWER_TIMEOUT_S = 10


def make_engine(url: URL, *, readonly: bool) -> Engine:
    """Return an engine that notices a restarted server and gives up on a silent one.

    Raises:
        ConfigurationError: The driver is not installed.
    """
    session = (
        f"-c lock_timeout={ANSWER_TIMEOUT_S}s -c default_transaction_read_only={'on' if readonly else 'off'} "
        # What a dead machine held is free again after a minute, not after two hours.
        "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
    )
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            pool_timeout=ANSWER_TIMEOUT_S,
            json_serializer=strict_json,
            connect_args={
                "connect_timeout": ANSWER_TIMEOUT_S,
                "tcp_user_timeout": ANSWER_TIMEOUT_S * 1000,
                "options": session,
            },
        )
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "PostgreSQL needs the psycopg driver.",
            where="CANDOR_DATABASE_URL",
            found="psycopg is not installed",
            expected="psycopg 3",
            remedy='Install it with: pip install "psycopg[binary]"',
        ) from error
