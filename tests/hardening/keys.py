"""A key for a service that is measured as it is run: with keys."""

from __future__ import annotations

import json
import subprocess
import sys

_RATE = 1_000_000  # requests a second: checked at every request, and never reached


def bearer(url: str, *scopes: str) -> dict[str, str]:
    """Make a key in a state that may not be there yet, and return the header that presents it.

    Args:
        url: Of the state database.
        scopes: What it may do.
    """
    command = [sys.executable, "-m", "service.cli", "keys", "create", "--name", "load", "--rate", str(_RATE)]
    command += [part for scope in scopes for part in ("--scope", scope)]
    done = subprocess.run([*command, "--database-url", url, "--json"], capture_output=True, text=True, check=True)
    return {"authorization": f"Bearer {json.loads(done.stdout)['key']}"}
