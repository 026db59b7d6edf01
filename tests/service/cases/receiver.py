"""A receiver of webhooks, as a process of its own that a test can kill: it notes what comes, and answers as it is told.

Usage: receiver.py PORT NOTES MODE. NOTES gets a line of JSON for each request. MODE is a file with the status of the
answers; "hang" never answers, "422 ID" refuses one case, "307 URL" sends it elsewhere.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    notes: Path
    mode: Path

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        mode, _, more = self.mode.read_text().partition(" ")
        if mode == "422" and json.loads(body)["case"]["id"] != more:
            mode = "204"
        with self.notes.open("a") as file:
            note = {"mode": mode, "path": self.path, "signature": self.headers["candor-signature"], "body": body}
            file.write(json.dumps(note) + "\n")
        if mode == "hang":
            time.sleep(600)
        self.send_response(int(mode))
        if mode == "307":
            self.send_header("location", more)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — the library's name
        """Say nothing."""


if __name__ == "__main__":
    Receiver.notes, Receiver.mode = Path(sys.argv[2]), Path(sys.argv[3])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
