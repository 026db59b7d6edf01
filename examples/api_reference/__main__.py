"""Write docs/api-reference.md, from the OpenAPI document of a running service and a conversation with it.

    python -m examples.api_reference [FILE]     `make reference`; FILE is docs/api-reference.md unless it is given

The service is the real one, on a bundle of digits that lies in this repository, in a process of its own with a fresh
state. That state's secret, which divides labelled rows, is set to zeros, so that every run says the same.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import httpx
from rich.console import Console
from sqlalchemy import update

from examples.api_reference.conversation import Conversation, hold
from examples.api_reference.page import write
from examples.serving import ROOT, service
from service.state.database import SECRET_BYTES, Database
from service.state.tables import secrets

PAGE = ROOT / "docs" / "api-reference.md"
_SETTINGS = {"CANDOR_LOG_MODE": "sync", "CANDOR_PROVIDER": "cpu", "CANDOR_THREADS": "1"}


def main() -> None:
    """Start a service, hold the conversation, write the page."""
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    examples = ROOT / "examples"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bundles").symlink_to(examples / "bundles")
        (folder / "files").mkdir()
        state = Database.open(f"sqlite:///{folder / 'state.db'}")
        with state.begin() as connection:
            connection.execute(update(secrets).values(value=bytes(SECRET_BYTES)))
        state.close()
        with service(folder, examples / "policies", Console(stderr=True), **_SETTINGS) as url:
            talk = Conversation(url, folder / "files")
            hold(talk, examples / "seven.png")
            document = httpx.get(f"{url}/openapi.json").json()
    page.write_text(write(document, talk.exchanges), encoding="utf-8")


if __name__ == "__main__":
    main()
