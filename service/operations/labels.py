"""Multi-label models: list them, and store the labels of their earlier predictions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bundle.manifest import ABSENT, PRESENT
from candor.contract.feedback import FeedbackEntry, FeedbackStatus
from candor.contract.labels import LabelsEntry, LabelsReceipt, LabelsStatus, MultiLabelModel, MultiLabelModels
from service.errors import FeedbackError, NotReadyError, UnknownLabelError, UnknownModelError
from service.ids import id_of
from service.operations import feedback
from service.operations.principal import Principal
from service.places import Place
from service.runtime import Runtime
from service.serving.labels import MultiLabel
from service.serving.model import Model
from service.serving.models import Models
from service.state.feedback import FeedbackItem

PlaceOf = Callable[[int, str | None], Place]
"""The place of an item in the request, or of the label of that name in it."""


def get(models: Models, name: str) -> MultiLabel:
    """Return the multi-label model called `name`; raises UnknownModelError."""
    found = models.multilabels.get(name)
    if found is None:
        raise UnknownModelError(
            f"Unknown multi-label model {name!r}.",
            where="model",
            found=name,
            expected=[several.name for several in models.multilabels.all()],
            remedy="Import one with --label-columns. A model of one label per row is at /v1/models.",
        )
    return found


def list_all(runtime: Runtime, *, by: Principal) -> MultiLabelModels:
    """Return every multi-label model that the caller may reach."""
    return MultiLabelModels(
        items=tuple(_described(several) for several in runtime.models.multilabels.all() if by.sees(several.name))
    )


def _described(several: MultiLabel) -> MultiLabelModel:
    try:
        labels = {label: model.name for label, model in several.models().items()}
    except NotReadyError as error:
        return MultiLabelModel(model=several.name, labels={}, problem=str(error))
    return MultiLabelModel(model=several.name, labels=labels, problem=None)


async def store(
    runtime: Runtime,
    several: MultiLabel,
    entries: Sequence[LabelsEntry],
    place: PlaceOf,
    *,
    by: Principal,
    idempotency_key: str | None,
    body_digest: bytes,
) -> LabelsReceipt:
    """Store labels durably: nothing if any item is wrong, else label by label, each as feedback of the label's model.

    Raises:
        FeedbackError: An item gives no label, or see `feedback.checked`.
        MalformedPredictionIdError: An id cannot be one of Candor's.
        UnknownLabelError: The model lacks a label.
        IdempotencyConflictError: The caller used the key for another body.
        StateUnavailableError: The database does not answer. Some labels may be stored; to repeat the request is safe.
    """
    models = several.models()
    checked = await asyncio.to_thread(_checked, models, entries, place, by)
    found: list[dict[str, FeedbackStatus]] = [{} for _ in entries]
    totals = dict.fromkeys(("stored", "pending", "duplicates", "conflicts"), 0)
    for label, items in checked.items():
        receipt = await feedback.store(
            runtime,
            models[label].name,
            [item for _, item in items],
            by=by,
            idempotency_key=idempotency_key,
            body_digest=body_digest,
        )
        for name in totals:
            totals[name] += getattr(receipt, name)
        for (index, _), one in zip(items, receipt.items, strict=True):
            found[index][label] = FeedbackStatus(status=one.status)
    return LabelsReceipt(**totals, items=tuple(LabelsStatus(labels=each) for each in found))


def _checked(
    models: Mapping[str, Model], entries: Sequence[LabelsEntry], place: PlaceOf, by: Principal
) -> dict[str, list[tuple[int, FeedbackItem]]]:
    """Return the feedback of each given label's model, with the places of its items in the request."""
    _check_labels(entries, models, place)
    given: dict[str, list[tuple[int, FeedbackEntry]]] = {label: [] for label in models}
    for index, entry in enumerate(entries):
        others = entry.model_dump(exclude={"labels"}, exclude_unset=True)
        for label, value in entry.labels.items():
            if value is not None:
                given[label].append((index, FeedbackEntry(**others, label=PRESENT if value else ABSENT)))
    return {label: _of_label(models[label], each, place, by) for label, each in given.items() if each}


def _check_labels(entries: Sequence[LabelsEntry], models: Mapping[str, Model], place: PlaceOf) -> None:
    for index, entry in enumerate(entries):
        for label in entry.labels:
            if label not in models:
                raise UnknownLabelError(
                    "The model has no such label.",
                    where=place(index, label[:200]),
                    found=label[:200],
                    expected=list(models),
                )
        if all(value is None for value in entry.labels.values()):
            raise FeedbackError(
                "An item gives no label.",
                where=place(index, None),
                found="null only",
                expected="true or false for at least one label",
            )


def _of_label(
    model: Model, given: Sequence[tuple[int, FeedbackEntry]], place: PlaceOf, by: Principal
) -> list[tuple[int, FeedbackItem]]:
    """Return the feedback of one label's model, checked, under the ids of its log."""
    items = feedback.checked(
        [entry for _, entry in given],
        (ABSENT, PRESENT),
        lambda at, field: place(given[at][0], None) if field is None else place(given[at][0], None) / field,
        by=by,
    )
    named = [
        item if item.prediction_id is None else replace(item, prediction_id=id_of(item.prediction_id, model.name))
        for item in items
    ]
    return [(index, item) for (index, _), item in zip(given, named, strict=True)]
