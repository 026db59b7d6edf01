"""The model repository of the protocol: its index, and what a request to load may contain."""

from __future__ import annotations

from typing import Any

from service.errors import InputError
from service.open_inference import fields
from service.open_inference.versions import loaded_versions
from service.places import in_body
from service.serving.model import Model


def index(models: list[Model], unknown: list[str], *, ready: bool) -> list[dict[str, str]]:
    """Return one entry per loaded version, and one per model without any.

    Args:
        models: Models of this process.
        unknown: Names of models in the bundle folder that were never loaded.
        ready: Whether to list ready versions only.
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
    """Refuse a load request that contains a configuration or files.

    Raises:
        InputError: The request contains either.
    """
    for name in fields.parameters(document):
        if name == "config" or name.startswith("file:"):
            raise InputError(
                "A model is loaded as its bundle defines it; a request cannot change its configuration or files.",
                where=in_body("parameters", name[:200]),
                expected="no configuration and no files",
                remedy="Export a bundle with a new version.",
            )
