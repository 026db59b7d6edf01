"""The protocol's model repository: which models there are, and loading and unloading them."""

from __future__ import annotations

from typing import Any

from service.errors import InputError
from service.models import Model
from service.rest.payloads import load_json
from service.rest.v2 import fields
from service.rest.v2.versions import loaded_versions


def body_of(content: bytes) -> dict[str, Any]:
    """Return the JSON object of a request that may have none.

    Raises:
        MalformedBodyError: There is something, and it is no JSON object.
    """
    return load_json(content) if content.strip() else {}


def index(models: list[Model], unknown: list[str], *, ready: bool) -> list[dict[str, str]]:
    """Return an entry for each version that answers, and one for each model of which none does.

    Args:
        models: The models of this process.
        unknown: Names of models that lie in the folder of bundles and were never loaded.
        ready: Whether only what answers counts.
    """
    entries = []
    for model in models:
        versions = sorted(loaded_versions(model), key=int)
        entries += [{"name": model.name, "version": version, "state": "READY", "reason": ""} for version in versions]
        if not versions and not ready:
            reason = model.problem or "unloaded"
            version = model.pointer.active.removeprefix("r")
            entries.append({"name": model.name, "version": version, "state": "UNAVAILABLE", "reason": reason})
    if not ready:
        entries += [{"name": name, "version": "", "state": "UNAVAILABLE", "reason": "not loaded"} for name in unknown]
    return entries


def check_load(document: dict[str, Any]) -> None:
    """Refuse to load a model with another configuration, or other files, than its bundle has.

    Raises:
        InputError: The request brings some.
    """
    for name in fields.parameters(document, ""):
        if name == "config" or name.startswith("file:"):
            raise InputError(
                "A model is loaded as its bundle is, which nothing changes.",
                where=f"/parameters/{name[:200]}",
                expected="no configuration and no files",
                remedy="Export a bundle with a new version.",
            )
