"""Requests to the server that runs a model elsewhere. Import it separately; it requires httpcore."""

from __future__ import annotations

import os
import re
import time
import weakref
from collections.abc import Mapping
from typing import Any, Final, Literal

import httpcore
from numpy.typing import NDArray

from bundle.deadlines import DeadlineBackend
from bundle.open_inference import LENGTH_HEADER, dump_request, load_answer, load_object
from bundle.upstream import Upstream

Kind = Literal["down", "slow", "answer", "rejected"]

_OK: Final = 200
_UNAVAILABLE: Final = 503
_ALL: Final = 16  # connections; a model's batches use one, checks another
_DOCUMENT: Final = 2**20  # bytes of metadata, or of an error
_VALUE: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_DISCONNECTED: Final = "Server disconnected"  # before it sent a byte; else it sent what is not HTTP
_SAID: Final = 200  # characters of a server's message
_STATUSES: Final[dict[int, Kind]] = {
    **dict.fromkeys((400, 413, 422, 500), "rejected"),  # what servers answer to rows that they cannot score
    **dict.fromkeys((401, 403, 404, 429, 502, 503), "down"),  # whatever the rows
    504: "slow",
}


class CallFailedError(Exception):
    """A request that got no usable answer.

    Args:
        kind: `down`, no connection or a refusal that has nothing to do with the rows; `slow`, not in time; `answer`,
            anything else than the protocol says; `rejected`, these rows.
        message: What was found. It does not name the server, since clients of a service may see it.
    """

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind: Kind = kind


class HeaderValueError(Exception):
    """The environment lacks a variable that holds a header's value, or the value is not one."""


class UpstreamClient:
    """Speak with the server of an upstream over connections that stay open. Thread-safe.

    No redirect is followed, no proxy of the environment is used, and no answer is unpacked. A request ends in the time
    for it, also if the server sends or reads a byte at a time. A failed attempt is repeated, `Upstream.retries` times
    and within that time, only if the connection failed before the head of an answer, or the answer was 503. A model's
    answer changes nothing, so a repetition is harmless.

    Args:
        upstream: The server.

    Raises:
        HeaderValueError: The environment lacks the value of a header.
    """

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        fixed = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "candor"}
        self._headers = {**fixed, **_headers(upstream)}
        self._http = httpcore.ConnectionPool(
            ssl_context=httpcore.default_ssl_context() if upstream.url.startswith("https:") else None,
            max_connections=_ALL,
            max_keepalive_connections=_ALL,
            keepalive_expiry=60,
            network_backend=DeadlineBackend(),
        )
        self.close = weakref.finalize(self, self._http.close)

    def metadata(self, *, until: float) -> dict[str, Any]:
        """Return the metadata of the model.

        Args:
            until: End of the time for it, on the clock of `time.monotonic`.

        Raises:
            CallFailedError: There is no usable answer.
        """
        return self.document(self.upstream.path, until=until)

    def document(self, url: str, *, until: float) -> dict[str, Any]:
        """Return the JSON object at an address of the server; see `metadata`."""
        body, _ = self._exchange("GET", url, until=until, largest=_DOCUMENT)
        try:
            return load_object(body)
        except ValueError as error:
            raise CallFailedError("answer", str(error)) from None

    def infer(
        self, inputs: Mapping[str, NDArray[Any]], output: str, *, largest: int, until: float
    ) -> tuple[NDArray[Any], str | None]:
        """Return an output for a batch, and the version of the model that gave it.

        Args:
            inputs: Arrays by name of the input.
            output: Name of the output.
            largest: Maximum bytes of the answer.
            until: End of the time for it, on the clock of `time.monotonic`.

        Raises:
            CallFailedError: There is no usable answer, or JSON cannot hold a value of the inputs.
        """
        try:
            content, headers = dump_request(inputs, output, binary=self.upstream.binary)
        except ValueError as error:
            raise CallFailedError("rejected", f"cannot be sent as JSON: {error}") from None
        url = f"{self.upstream.path}/infer"
        body, length = self._exchange("POST", url, until=until, largest=largest, content=content, headers=headers)
        try:
            return load_answer(body, length, output)
        except ValueError as error:
            raise CallFailedError("answer", str(error)) from None

    def _exchange(
        self,
        method: str,
        url: str,
        *,
        until: float,
        largest: int,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[bytes, str | None]:
        """Return the body of the answer and its Inference-Header-Content-Length."""
        attempts = self.upstream.retries + 1
        times = dict.fromkeys(("connect", "read", "write"), until)
        for left in reversed(range(attempts)):
            try:
                with self._http.stream(
                    method,
                    url,
                    headers=[*self._headers.items(), *(headers or {}).items()],
                    content=content,
                    extensions={"timeout": times | {"pool": self._left(until)}},
                ) as answer:
                    if answer.status == _UNAVAILABLE and left:
                        continue
                    found = {name.lower(): value.decode("latin-1") for name, value in answer.headers}
                    body = self._body(answer, found, largest if answer.status == _OK else _DOCUMENT)
            except httpcore.ConnectTimeout:
                raise CallFailedError("down", "no connection in time") from None
            except httpcore.TimeoutException:
                raise CallFailedError("slow", "no answer in time") from None
            except (httpcore.NetworkError, httpcore.RemoteProtocolError) as error:
                if isinstance(error, httpcore.RemoteProtocolError) and not str(error).startswith(_DISCONNECTED):
                    raise CallFailedError("answer", str(error)) from None
                if left:
                    continue
                raise CallFailedError("down", str(error) or type(error).__name__) from None
            except (httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
                raise CallFailedError("down", str(error)) from None
            if answer.status != _OK:
                raise self._refused(answer.status, body)
            return body, found.get(LENGTH_HEADER.lower().encode())
        raise AssertionError("the last attempt returns or raises")

    def _body(self, answer: httpcore.Response, headers: dict[bytes, str], largest: int) -> bytes:
        if headers.get(b"content-encoding", "identity") != "identity":
            raise CallFailedError("answer", "a content encoding that was not accepted")
        announced = headers.get(b"content-length", "0")
        if announced.isdecimal() and int(announced) > largest:
            raise CallFailedError("answer", f"{announced[:40]} bytes announced, expected at most {largest}")
        parts, size = [], 0
        try:
            for part in answer.iter_stream():
                size += len(part)
                if size > largest:
                    raise CallFailedError("answer", f"over {largest} bytes")
                parts.append(part)
        except httpcore.TimeoutException:
            raise CallFailedError("slow", "no end of the answer in time") from None
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise CallFailedError("down", f"the answer broke off: {error}") from None
        return b"".join(parts)

    def _left(self, until: float) -> float:
        left = until - time.monotonic()
        if left <= 0:
            raise CallFailedError("slow", "no answer in time")
        return left

    def _refused(self, status: int, body: bytes) -> CallFailedError:
        try:
            said = str(load_object(body).get("error", ""))[:_SAID]
        except ValueError:
            said = ""
        return CallFailedError(_STATUSES.get(status, "answer"), f"status {status} {said}".strip())


def _headers(upstream: Upstream) -> dict[str, str]:
    for variable in upstream.headers.values():
        if not _VALUE.fullmatch(os.environ.get(variable, "")):  # the message never shows it
            raise HeaderValueError(f"The environment variable {variable} is not set, or not the value of a header.")
    return {name.lower(): os.environ[variable] for name, variable in upstream.headers.items()}
