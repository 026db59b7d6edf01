"""Bundles of models that stay on another server, and servers that answer what they should not."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

import bundle as bundles
from bundle import Bundle, Graph, GraphInput, GraphOutput, Upstream
from bundle.upstream import metadata_digest
from tests.waiting import PATIENCE_S

from .conftest import contents

RECORD = bundles.ImportRecord(format="open-inference", source="http://upstream/v2/models/digits")


def upstream_of(url: str, *, key: str = "", **fields: Any) -> Upstream:
    """The model `digits` of a server as it is now."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    metadata = httpx.get(f"{url}/v2/models/digits", headers=headers, timeout=PATIENCE_S).json()
    return Upstream(**{"url": url, "model": "digits", "version": "1", "metadata": metadata_digest(metadata)} | fields)


def write(root: Path, digits: Bundle, upstream: Upstream, *, output: str = "logits") -> Path:
    """Write a bundle `far` that is `digits` but for the place where its model runs."""
    form = "logits" if output == "logits" else "probabilities"
    graph = Graph(
        inputs=(GraphInput(name="input", dtype="uint8", shape=digits.manifest.input.shape),),
        output=GraphOutput(name=output, form=form),
    )
    changes: dict[str, Any] = {"model": "far", "source": "remote", "graph": graph, "imported": RECORD}
    changes |= {"architecture": None, "training": None, "model_bytes": upstream.dump()}
    return bundles.write(root, contents(digits, **changes))


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Clients that went away are what these tests are about."""


class Hostile:
    """A proxy before a real server whose answers to inferences may be replaced."""

    def __init__(self, behind: str, *, port: int = 0) -> None:
        self.answer: Callable[[BaseHTTPRequestHandler, httpx.Response], None] | None = None
        self.asked = 0
        self._connections: set[socket.socket] = set()
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                hostile._connections.add(self.connection)

            def do_GET(self) -> None:
                self._give(httpx.get(behind + self.path, timeout=PATIENCE_S))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                kept = ("content-type", "inference-header-content-length")
                headers = {name: self.headers[name] for name in kept if self.headers[name]}
                found = httpx.post(behind + self.path, content=body, headers=headers, timeout=PATIENCE_S)
                hostile.asked += 1
                if hostile.answer is None:
                    self._give(found)
                else:
                    hostile.answer(self, found)

            def _give(self, found: httpx.Response) -> None:
                passed = {name: value for name, value in found.headers.items() if name != "content-encoding"}
                give(self, found.content, found.status_code, **passed)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Quiet(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        """End, with every connection that is open."""
        self._server.shutdown()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()


def give(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    """Answer a request."""
    kept = ("content-type", "inference-header-content-length", "location", "content-encoding")
    handler.send_response(status)
    for name, value in headers.items():
        if name.replace("_", "-") in kept:
            handler.send_header(name.replace("_", "-"), value)
    handler.send_header("content-length", headers.get("content_length", str(len(body))))
    handler.end_headers()
    handler.wfile.write(body)
