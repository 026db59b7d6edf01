"""Versions of a model in /v2: the numbers of its revisions."""

from __future__ import annotations

from service.errors import UnknownRevisionError
from service.serving.model import Model
from service.serving.plane import Served


def version_of(served: Served) -> str:
    """Return the version of a loaded revision: "7" for r7."""
    return served.revision.id.removeprefix("r")


def loaded_versions(model: Model) -> dict[str, Served]:
    """Return the loaded revisions of a model by version: the active one, and the previous one while it stays loaded."""
    answering = (model.plane.served, model.loaded.get(model.pointer.previous or ""))
    return {version_of(served): served for served in answering if served is not None}


def served_version(model: Model, version: str | None) -> Served:
    """Return the loaded revision for `version`, such as "7" or "r7"; None selects the active revision.

    Raises:
        NotReadyError: No revision is active.
        UnknownRevisionError: The version is not loaded.
    """
    active = model.served
    if version is None:
        return active
    loaded = loaded_versions(model)
    served = loaded.get(version.removeprefix("r"))
    if served is None:
        raise UnknownRevisionError(
            f"Version {version[:40]!r} of model {model.name} is not loaded.",
            where="version",
            found=version,
            expected=sorted(loaded),
            remedy="A version is a revision's number. Name one of these, or leave it out for the active one.",
        )
    return served
