"""A hub on this machine: the part of the Hugging Face Hub's HTTP API that reads one repository of models."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@contextmanager
def hub(repository: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """Serve the files of a repository; yields the value of HF_ENDPOINT."""
    entries = [{"type": "file", "path": path, "size": len(data), "oid": "1" * 40} for path, data in files.items()]
    api = f"/api/models/{repository}"

    class Hub(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path in (api, f"{api}/revision/main"):
                self.answer({"id": repository, "sha": "0" * 40})
            elif path == f"{api}/tree/main":
                self.answer(entries)
            elif (data := files.get(path.removeprefix(f"/{repository}/resolve/main/"))) is not None:
                first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
                self.send(206, data[int(first) : int(last) + 1 if last else None])
            else:
                self.send(404, b"")

        def answer(self, found: object) -> None:
            self.send(200, json.dumps(found).encode(), "application/json")

        def send(self, status: int, body: bytes, kind: str = "application/octet-stream") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
