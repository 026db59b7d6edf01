"""Schemathesis finds no answer that the OpenAPI document does not describe; the long run is tests/hardening."""

from __future__ import annotations

import re

import httpx

from tests.hardening.openapi import UNLOADS, run
from tests.hardening.running import Running
from tests.waiting import PATIENCE_S

METHODS = {"get", "put", "post", "delete", "patch", "head", "options"}


def test_answers_are_those_of_the_document(running: Running) -> None:
    paths = httpx.get(f"{running.url}/openapi.json", timeout=PATIENCE_S).json()["paths"]
    asked = sum(len(METHODS & set(item)) for path, item in paths.items() if not re.search(UNLOADS, path))
    done = run(running, examples=3, seed=1, phases="examples,fuzzing")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"Operations: +{asked} selected", done.stdout), done.stdout
