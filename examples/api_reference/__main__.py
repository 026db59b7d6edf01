"""Write the site's API reference, from the OpenAPI document of a running service and a conversation with it.

    python -m examples.api_reference FILE     `make reference` writes build/api-reference.md

The real service runs in a separate process with a new state and this repository's bundle of digits. The state's secret,
which divides labelled rows, is set to zeros so that every run gives the same page.
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

_SETTINGS = {"CANDOR_LOG_MODE": "sync", "CANDOR_PROVIDER": "cpu", "CANDOR_THREADS": "1"}


def main() -> None:
    """Start a service, hold the conversation, write the page."""
    page = Path(sys.argv[1])
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
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
