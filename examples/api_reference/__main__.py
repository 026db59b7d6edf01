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
import numpy as np
from rich.console import Console
from sqlalchemy import update

from examples.api_reference.conversation import Conversation, hold
from examples.api_reference.page import write
from examples.serving import ROOT, service
from importing.finish import Options
from importing.rows import read_rows
from importing.scores import import_score_rows
from importing.split import SHARES
from service.state.database import SECRET_BYTES, Database
from service.state.tables import secrets

_SETTINGS = {
    "CANDOR_DEFAULT_MODEL": "digits",
    "CANDOR_LOG_MODE": "sync",
    "CANDOR_PROVIDER": "cpu",
    "CANDOR_THREADS": "1",
}


def import_comments(folder: Path) -> None:
    """Import the scores of two labels as a multi-label model `comments`."""
    draw = np.random.default_rng(7)
    scores = draw.random((400, 2))
    rows = np.hstack([scores, draw.random((400, 2)) < scores**2])
    np.savetxt(folder / "rows.csv", rows, "%g", ",", header="p_toxic,p_insult,toxic,insult", comments="")
    found = read_rows(folder / "rows.csv", marks=("toxic", "insult"), scores=("p_toxic", "p_insult"), columns=())
    options = Options(
        *("comments", None, "temperature", SHARES, 0, False, folder / "bundles", False),
        label_columns=("toxic", "insult"),
    )
    import_score_rows(found, options, Console(quiet=True))


def main() -> None:
    """Start a service, hold the conversation, write the page."""
    page = Path(sys.argv[1])
    examples = ROOT / "examples"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bundles").mkdir()
        for bundle in (examples / "bundles").iterdir():
            (folder / "bundles" / bundle.name).symlink_to(bundle)
        (folder / "files").mkdir()
        import_comments(folder)
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
