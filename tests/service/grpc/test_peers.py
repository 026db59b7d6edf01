"""The clients of KServe, REST's too, and MLServer as they are, in the Python that `make peers` has made for them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.inference.session import Session
from service.state.keys import KeyStore
from tests.conftest import ROOT
from tests.waiting import PATIENCE_S

from .conftest import address

PEERS = ROOT / "build" / "peers"
SCRIPTS = Path(__file__).parent / "peers"
ROWS = 5


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.py")), ids=lambda script: script.stem)
def test_they_get_the_probabilities_of_the_bundle(
    script: Path, speak: Callable[..., Any], digits: Any, tmp_path: Path
) -> None:
    if not (PEERS / ".made").exists():
        pytest.skip("KServe and MLServer are not installed: make peers")
    service = speak()
    _, key = KeyStore(service.runtime.database).create("peer", ["predict"])
    service.application._access.refresh()
    np.save(tmp_path / "images.npy", digits.images[:ROWS])
    known = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    at = service.url if script.stem.endswith("_rest") else address(service)
    command = [PEERS / "bin" / "python", script, at, tmp_path / "images.npy", key]
    done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    logits = Session(digits.bundle, provider="cpu", threads=1).run(digits.images[:ROWS])
    probabilities = digits.bundle.calibrator.predict_proba(logits)
    for contents in ("raw", "typed"):
        np.testing.assert_allclose(found[contents], probabilities, atol=1e-5)
    assert set(found["decisions"]) <= {"accept", "review"}
    assert len(found["decisions"]) == ROWS
    assert found["live"] is found["ready"] is found["model"] is True
    assert found["without a key"] == "UNAUTHENTICATED"
