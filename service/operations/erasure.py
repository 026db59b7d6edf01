"""Erase everything that is stored about one subject."""

from __future__ import annotations

from dataclasses import asdict

from bundle.split import group_hash
from candor.contract.erasure import Erasure, ErasureRequest
from service.errors import InputValueError, StateUnavailableError
from service.operations.principal import Principal
from service.others import FLUSH
from service.places import in_body
from service.runtime import Runtime
from service.serving.model import Model
from service.state.erasure import Kind, Subject
from service.state.erasure import erase as erase_rows


def erase(runtime: Runtime, model: Model, request: ErasureRequest, *, by: Principal) -> Erasure:
    """Erase predictions, kept inputs, labels and receipts of one subject.

    Predictions that this replica made before the call are erased, written or not, by any of its workers; those that
    another replica has still to write are not. Labelled sets stay: the answer names those with rows of the group.

    Raises:
        InputValueError: The request names no subject, or several.
        StateUnavailableError: Predictions could not be written in time.
    """
    names: dict[Kind, str | None] = {
        "group": request.group,
        "reference": request.reference,
        "prediction_id": request.prediction_id,
    }
    subjects = [Subject(kind, name) for kind, name in names.items() if name is not None]
    if len(subjects) != 1:
        raise InputValueError(
            "One request erases one subject.",
            where=in_body(),
            found=[subject.kind for subject in subjects] or "none",
            expected="one of group, reference, prediction_id",
        )
    if any(answer.missing == "silent" or answer.value is False for answer in runtime.others.ask(FLUSH)):
        raise StateUnavailableError(
            "Predictions wait to be written, and may be of this subject.",
            remedy="Try again when the state database answers.",
        )
    erased = erase_rows(runtime.database, model.name, subjects[0], by=by.name)
    holding: tuple[str, ...] = ()
    if request.group is not None:
        group = group_hash(runtime.database.secret, request.group)
        holding = tuple(runtime.labelled_sets.holding(model.name, group))
    return Erasure(model=model.name, **asdict(erased), labelled_sets=holding)
