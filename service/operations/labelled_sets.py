"""Labelled sets of a model: list, describe, delete."""

from __future__ import annotations

from candor.contract.labelled_sets import LabelledSet, LabelledSetPage
from service.operations.principal import Principal
from service.runtime import Runtime
from service.serving.model import Model
from service.state.labelled_sets import LabelledSet as Stored
from service.times import iso


def list_labelled_sets(runtime: Runtime, model: Model) -> LabelledSetPage:
    """Return the labelled sets of a model, newest first."""
    return LabelledSetPage(items=tuple(described(found) for found in runtime.labelled_sets.list(model.name)))


def get_labelled_set(runtime: Runtime, model: Model, labelled_set: str) -> LabelledSet:
    """Return the description of a labelled set.

    Raises:
        UnknownLabelledSetError: The model has no such set.
    """
    return described(runtime.labelled_sets.get(model.name, labelled_set))


def delete_labelled_set(runtime: Runtime, model: Model, labelled_set: str, *, by: Principal) -> LabelledSet:
    """Delete a labelled set and return its description. Looks at its rows stay counted.

    Raises:
        UnknownLabelledSetError: The model has no such set.
        LabelledSetStateError: A job is about to read it.
    """
    found = get_labelled_set(runtime, model, labelled_set)
    runtime.labelled_sets.delete(model.name, labelled_set, by=by.name)
    return found


def described(found: Stored) -> LabelledSet:
    """Return a stored set as clients read it."""
    return LabelledSet(
        id=found.id,
        model=found.model,
        sha256=found.sha256,
        bytes=found.bytes,
        rows=found.rows,
        kind=found.kind,
        represents=found.represents,
        labels=found.labels,
        segments=tuple(found.segments),
        by=found.by,
        created_at=iso(found.created_at),
    )
