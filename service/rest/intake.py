"""Uploads of labelled sets: written to disk, checked by a child process, then stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import orjson
import structlog

from service.errors import (
    BodyTooLargeError,
    CandorError,
    MalformedBodyError,
    OverloadedError,
    UnsupportedMediaTypeError,
    error_from_document,
)
from service.operations.principal import Principal
from service.rest.bodies import ClientGoneError, Receive, Scope, header
from service.rest.compression import Unpacking, content_encoding
from service.rest.payloads import media_type_of
from service.row_files.check import MEDIA_TYPES, CheckTask, too_much_memory
from service.row_files.parquet_rows import PARQUET_TYPE, check_installed
from service.row_files.spool import Spool, sweep
from service.runtime import Runtime
from service.serving.child import child
from service.serving.model import Model
from service.state.database import now_us
from service.state.labelled_sets import Content, LabelledSet, Represents

logger = structlog.get_logger(__name__)

_AT_ONCE: Final = 4
_PIECE: Final = 1 << 20
_OUT_OF_MEMORY: Final = b"memory allocation of"  # said by the reader of Parquet, which then ends its process


class Intake:
    """Receive labelled sets. A few are received at once; one is checked at a time.

    Args:
        runtime: Parts of the service.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._coming = Counter[str]()  # by uploader
        self._most = max(1, _AT_ONCE // runtime.others.processes)
        self._most_of_one = max(1, self._most // 2)
        self._checking = asyncio.Lock()
        sweep(self._settings.uploads)
        runtime.labelled_sets.sweep()

    async def take(
        self, scope: Scope, receive: Receive, model: Model, *, represents: Represents | None, by: Principal
    ) -> tuple[LabelledSet, bool]:
        """Receive the body of a request and store it. A failure leaves nothing behind.

        Args:
            scope: Scope of the request.
            receive: ASGI callable, before anything was read.
            model: Model of the set.
            represents: Population that the set is declared a random sample of.
            by: Uploader.

        Returns:
            The set, and whether it is new: the same bytes are the same set.

        Raises:
            UnsupportedMediaTypeError: The endpoint does not accept the content type or encoding.
            BodyTooLargeError: The body exceeds the size limit, compressed or unpacked.
            OverloadedError: Too many uploads are in progress.
            InputError: The rows cannot be used.
            UnknownLabelError: The model does not have some of the labels.
            LabelledSetStateError: The same bytes were uploaded with another declaration, or the state keeps as much of
                this uploader as it may.
            ClientGoneError: The connection closed before the body was complete.
        """
        media_type = media_type_of(header(scope, b"content-type"))
        encoding = content_encoding(scope)
        if media_type not in MEDIA_TYPES:
            raise UnsupportedMediaTypeError(
                f"The endpoint does not accept {media_type!r}.", found=media_type, expected=list(MEDIA_TYPES)
            )
        if media_type == PARQUET_TYPE:
            check_installed()
        announced = header(scope, b"content-length")
        if announced is not None and announced.isdigit():
            self._check_size(int(announced))
        for found, most in ((self._coming.total(), self._most), (self._coming[by.name], self._most_of_one)):
            if found >= most:
                raise OverloadedError(
                    "Too many labelled sets are being uploaded.",
                    found=found,
                    expected=f"fewer than {most}",
                    remedy="Retry after the number of seconds in Retry-After.",
                )
        self._coming[by.name] += 1
        try:
            spool = await asyncio.to_thread(Spool, self._settings.uploads)
            try:
                await self._receive(receive, spool, encoding)
                return await self._stored(spool, media_type, model, represents, by)
            finally:
                await asyncio.shield(asyncio.to_thread(spool.remove))
        finally:
            self._coming[by.name] -= 1
            self._coming += Counter()  # forgets who has none

    async def _receive(self, receive: Receive, spool: Spool, encoding: str) -> None:
        """Write the body to disk, a piece at a time and off the event loop."""
        unpacking: Unpacking | None = None
        piece, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            piece += message.get("body", b"")
            more = message.get("more_body", False)
            if len(piece) >= _PIECE or not more:
                if encoding != "identity" and unpacking is None:
                    unpacking = Unpacking(encoding, bytes(piece[:2]))
                await asyncio.to_thread(self._write, spool, bytes(piece), unpacking)
                piece.clear()
        if unpacking is not None:
            unpacking.end()

    def _write(self, spool: Spool, data: bytes, unpacking: Unpacking | None) -> None:
        for part in (data,) if unpacking is None else unpacking.pieces(data):
            self._check_size(spool.bytes + len(part))
            spool.write(part)

    def _check_size(self, size: int) -> None:
        limit = self._settings.max_upload_bytes
        if size > limit:
            raise BodyTooLargeError(
                "The labelled set is too large.",
                found=f"{size} bytes, or more",
                expected=f"at most {limit} bytes",
                remedy="Upload fewer rows, or raise CANDOR_MAX_UPLOAD_BYTES.",
            )

    async def _stored(
        self, spool: Spool, media_type: str, model: Model, represents: Represents | None, by: Principal
    ) -> tuple[LabelledSet, bool]:
        store, served = self._runtime.labelled_sets, model.served
        content_of = (model.name, served.revision.model_digest, spool.sha256)
        if (same := await asyncio.to_thread(store.find, *content_of, represents)) is not None:
            return same, False
        task = CheckTask(
            body=str(spool.body.resolve()),
            media_type=media_type,
            bundle=str(served.bundle.path),
            folder=str(spool.path.resolve()),
            secret=self._runtime.database.secret.hex(),
            now_us=now_us(),
            limit=self._settings.max_upload_bytes,
            max_pixels=self._settings.max_pixels,
        )
        async with self._checking:
            await asyncio.to_thread(store.check_room, by.name, spool.bytes)
            content = await self._checked(task)
        add = partial(
            store.add,
            *content_of,
            size=spool.bytes,
            represents=represents,
            content=content,
            read=partial(_read, spool, content),
            by=by.name,
            by_key=by.prefix,
        )
        return await asyncio.to_thread(add), True

    async def _checked(self, task: CheckTask) -> Content:
        """Run the child process that checks the file and writes the rows in stored form."""
        try:
            async with (
                asyncio.timeout(self._settings.refit_timeout_s),
                child("service.row_files.check", self._settings.refit_cpu) as process,
            ):
                answer, complaints = await process.communicate(orjson.dumps(asdict(task)) + b"\n")
        except TimeoutError:
            raise CandorError(
                "The check of the labelled set took too long and was stopped.",
                found=f"more than {self._settings.refit_timeout_s:g} s",
                remedy="Upload fewer rows, or as npz, which is read fastest; raise CANDOR_REFIT_TIMEOUT_S; or, on a "
                "host that is always busy, set CANDOR_REFIT_CPU=low.",
            ) from None
        if process.returncode and _OUT_OF_MEMORY in complaints:
            raise too_much_memory()
        if process.returncode or not answer:
            logger.error("check of a labelled set failed", status=process.returncode, error=complaints.decode()[-2000:])
            raise MalformedBodyError(
                "The labelled set cannot be read: the process that read it died.",
                found=f"exit status {process.returncode}",
                expected=f"a whole file of {task.media_type}",
                remedy="Write it anew, with smaller row groups where it is Parquet; the service's log says more.",
            )
        document: dict[str, Any] = orjson.loads(answer)
        if "error" in document:
            raise error_from_document(document["error"])
        return Content(**document["content"])


def _read(spool: Spool, content: Content, name: str, first: int, rows: int) -> bytes:
    """Return some rows of a checked column."""
    width = spool.column(name).stat().st_size // content.rows
    with spool.column(name).open("rb") as stream:
        stream.seek(first * width)
        return stream.read(rows * width)
