"""TLS of a service: the certificate and its key from files, read again when they change."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from service.errors import ConfigurationError

if TYPE_CHECKING:
    import grpc

    from service.settings import Settings

logger = structlog.get_logger(__name__)

_EVERY_S: Final = 5.0


class Certificates:
    """The certificate of a service, for HTTP and gRPC. New connections get the newest; open ones keep theirs.

    TLS 1.2 or newer. With a certificate authority for clients, a connection requires a certificate of it.

    Args:
        cert: PEM file with the certificate and those between it and its authority.
        key: PEM file with the private key, without a password.
        client_ca: PEM file with the authorities of client certificates; None asks for none.

    Attributes:
        context: For HTTP; it always has the newest certificate.

    Raises:
        ConfigurationError: A file cannot be read, or the key is not that of the certificate.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._seen = self._state()
        self._refused: list[tuple[int, int, int] | None] | None = None
        self.context = self._made()
        self._pair = self._read()
        self.context.set_alpn_protocols(["http/1.1"])

    @classmethod
    def of(cls, settings: Settings) -> Certificates | None:
        """Return the certificates of the settings; None for a service without TLS.

        Raises:
            ConfigurationError: They cannot be used.
        """
        if settings.tls_cert is None or settings.tls_key is None:
            return None
        return cls(settings.tls_cert, settings.tls_key, settings.tls_client_ca)

    def check(self) -> None:
        """Read the files again if they have changed. What cannot be used is logged, and the last certificate stays."""
        state = self._state()
        if state == self._seen:
            return
        try:
            self._made()  # whole, before the context in use takes part of it
            pair = self._read()
            self.context.load_cert_chain(self._cert, self._key)
            if self._client_ca is not None:
                self.context.load_verify_locations(self._client_ca)
        except (ConfigurationError, OSError, ssl.SSLError) as error:
            if state != self._refused:
                logger.error("new certificate not used; the last one stays", cert=str(self._cert), error=str(error))
            self._refused = state  # tried again each time: a file may become readable without a change
            return
        self._pair, self._seen, self._refused = pair, state, None
        logger.info("certificate read again", cert=str(self._cert))
        self.tell()

    def tell(self) -> None:
        """Log that clients refuse the certificate, if it has expired or is not valid yet."""
        if (problem := self.invalid(datetime.now(UTC))) is not None:
            logger.error(
                "clients refuse the certificate", error=problem, remedy="Renew it: the service reads it again."
            )

    def invalid(self, at: datetime) -> str | None:
        """Return why clients refuse the certificate at a time, as far as that depends on the time; None if valid."""
        from cryptography import x509

        try:
            certificate = x509.load_pem_x509_certificate(self._pair[0])  # the first is the service's own
        except ValueError:  # OpenSSL accepts more than this reader
            return None
        if at > certificate.not_valid_after_utc:
            return f"{self._cert} is valid until {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}."
        if at < certificate.not_valid_before_utc:
            return f"{self._cert} is valid from {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}."
        return None

    async def follow(self) -> None:
        """Check again and again, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await asyncio.to_thread(self.check)

    def for_grpc(self) -> grpc.ServerCredentials:
        """Return credentials of a gRPC server, which also follow the files."""
        import grpc

        last = self._pair

        def configured() -> Any:
            chain, key, authorities = self._pair
            return grpc.ssl_server_certificate_configuration([(key, chain)], authorities)

        def newest() -> Any:
            nonlocal last
            if self._pair is last:
                return None
            last = self._pair
            return configured()

        return grpc.dynamic_ssl_server_credentials(configured(), newest, self._client_ca is not None)

    def _state(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for file in (self._cert, self._key, self._client_ca):
            try:
                status = None if file is None else file.stat()
            except OSError:
                status = None
            found.append(None if status is None else (status.st_mtime_ns, status.st_size, status.st_ino))
        return found

    def _read(self) -> tuple[bytes, bytes, bytes | None]:
        authorities = None if self._client_ca is None else self._client_ca.read_bytes()
        return self._cert.read_bytes(), self._key.read_bytes(), authorities

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._cert, self._key, password=lambda: b"")  # else it asks on the terminal
            if self._client_ca is not None:
                context.load_verify_locations(self._client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            files = [str(file) for file in (self._cert, self._key, self._client_ca) if file is not None]
            raise ConfigurationError(
                f"The files of TLS cannot be used: {error}.",
                where="CANDOR_TLS_CERT, CANDOR_TLS_KEY, CANDOR_TLS_CLIENT_CA",
                found=", ".join(files),
                expected="PEM files that the service can read: a certificate, its key without a password, authorities",
            ) from error
        return context
