"""Multi-label models over HTTP: the list, predictions and feedback of all labels at once."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, cast

import orjson
from fastapi import APIRouter, Depends, Header, Request, Response

from candor.contract.labels import LabelsFeedback, LabelsReceipt, MultiLabelModels
from service.operations import labels as operations
from service.operations.predicting import Predicting, Prediction
from service.places import Place, in_body
from service.rest.answer import decision_of, policy_of
from service.rest.bodies import Scope
from service.rest.dependencies import Caller, RuntimeDep, model_in_path
from service.rest.exchange import Written
from service.rest.payloads import Payload
from service.rest.predict import JSON_HEADERS, PredictBody
from service.rest.responses import sent
from service.serving.labels import LabelsAnswer
from service.serving.model import Model
from service.serving.plane import Served

_QUERY: Final = ("policy", "segment")
_ROW_BYTES: Final = 160
_LABEL_BYTES: Final = 100


class PredictLabels(Predicting):
    """Answer prediction requests of multi-label models."""

    def asked(self, scope: Scope, model_name: str | None) -> Prediction[Payload, Written]:
        """Return the prediction that a request asks for, before its body is read.

        Raises:
            CandorError: The request cannot be answered.
        """
        several = operations.get(self.models, model_name or "")
        active = several.served
        several.plane.check_room(active)
        # A multi-label model and its revisions have what a prediction needs of a model and its revision.
        return _Prediction(self, cast("Model", several), cast("Served", active), scope, _QUERY)


class _Prediction(PredictBody):
    """A request of /v1/multilabel/{model}/predict."""

    def answered(self, answer: Any) -> None:
        """Take the answer, and count it for each label."""
        self.labelled(answer)

    @property
    def size(self) -> int:
        """About how many bytes `write` makes."""
        answer = cast("LabelsAnswer", self.answer)
        return len(answer.ids) * (_ROW_BYTES + _LABEL_BYTES * len(answer.answers))

    def write(self) -> Written:
        """Return the answer as JSON."""
        return Written(_write(cast("LabelsAnswer", self.answer)), JSON_HEADERS)


def _write(answer: LabelsAnswer) -> bytes:
    active = answer.served
    probabilities = answer.probabilities
    references = answer.references or [None] * len(answer.ids)
    document = {
        "model": active.revision.model,
        "labels": {
            label: {
                "model": model.name,
                "revision": served.revision.id,
                "policy": None if one.policy is None else policy_of(one.policy, one.per_row.segments),
            }
            for label, model, served, one in zip(
                active.labels, active.models, active.members, answer.answers, strict=True
            )
        },
        "predictions": [
            {
                "prediction_id": prediction_id,
                "reference": references[row],
                "probabilities": dict(zip(active.labels, probabilities[row], strict=True)),
                "decisions": {
                    label: decision_of(one, row) for label, one in zip(active.labels, answer.answers, strict=True)
                },
            }
            for row, prediction_id in enumerate(answer.ids)
        ],
    }
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def list_multilabel_models(runtime: RuntimeDep, by: Caller) -> Response:
    """List the multi-label models that the key may reach, with the name of each label's own model."""
    return sent(operations.list_all(runtime, by=by))


async def labels_feedback(
    request: Request,
    runtime: RuntimeDep,
    by: Caller,
    model: str,
    body: LabelsFeedback,
    idempotency_key: Annotated[
        str | None, Header(min_length=1, max_length=200, description="Makes a repeated request harmless.")
    ] = None,
) -> Response:
    """Store true labels of earlier predictions of a multi-label model; labels that are not given stay unknown.

    Nothing is stored if any item is wrong. They are durable when the answer comes, label by label: after an error of
    the state (503) repeat the request, which stores what is missing.
    """

    def place(index: int, label: str | None) -> Place:
        item = in_body("items", index)
        return item if label is None else item / "labels" / label

    receipt = await operations.store(
        runtime,
        operations.get(runtime.models, model),
        body.items,
        place,
        by=by,
        idempotency_key=idempotency_key,
        body_digest=hashlib.sha256(await request.body()).digest(),
    )
    return sent(receipt)


def add_to(router: APIRouter) -> None:
    """Mount the endpoints, without the prediction, which FastAPI does not see."""
    router.add_api_route(
        "/v1/multilabel", list_multilabel_models, methods=["GET"], tags=["labels"], response_model=MultiLabelModels
    )
    router.add_api_route(
        "/v1/multilabel/{model}/feedback",
        labels_feedback,
        methods=["POST"],
        tags=["labels"],
        response_model=LabelsReceipt,
        dependencies=[Depends(model_in_path)],
    )
