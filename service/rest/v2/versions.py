"""Versions of a model: the protocol's word for revisions, whose number they are."""

from __future__ import annotations

from service.errors import UnknownRevisionError
from service.models import Model
from service.plane import Served
from service.revision import Revision


def version_of(revision: Revision) -> str:
    """Return a revision's version: "7" for r7."""
    return revision.id.removeprefix("r")


def loaded_versions(model: Model) -> dict[str, Served]:
    """Return what answers for a model, by version: the active revision, and the one before while it stays loaded."""
    answering = (model.plane.served, model.loaded.get(model.pointer.previous or ""))
    return {version_of(served.revision): served for served in answering if served is not None}


def served_version(model: Model, version: str | None) -> Served:
    """Return the revision that answers for `version`, such as "7" or "r7"; without one the active revision.

    Raises:
        NotReadyError: Nothing is in service.
        UnknownRevisionError: No revision of that version is loaded.
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
