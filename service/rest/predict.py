"""POST /v1/models/{model}/predict, from the head of a request to its answer; `predict_openapi` documents it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from service.errors import InputValueError
from service.inference.names import check_name
from service.operations.predicting import Predicting, Prediction, most_at_once
from service.places import in_body, in_query
from service.rest import payloads
from service.rest.answer import size_of, write
from service.rest.bodies import Scope, header
from service.rest.exchange import Written, query_values
from service.rest.payloads import Payload
from service.serving.model import Model
from service.serving.plane import Served

_TOP: Final = re.compile(r"0|[1-9][0-9]{0,8}")
JSON_HEADERS: Final = ((b"content-type", b"application/json"),)


class Predict(Predicting):
    """Answer prediction requests."""

    def asked(self, scope: Scope, model_name: str | None) -> Prediction[Payload, Written]:
        """Return the prediction that a request asks for, before its body is read. A model of None is the default model.

        Raises:
            CandorError: The request cannot be answered.
        """
        model = self.models.get(model_name)
        served = model.served
        model.plane.check_room(served)
        return _Prediction(self, model, served, scope, _Query._fields)


class Predicted(Prediction[Payload, Written]):
    """A prediction request of /v1, whatever its body and its answer look like.

    Args:
        predicting: See `Prediction`.
        model: The model.
        served: The revision that answers.
        scope: Scope of the request.
        known: Allowed query parameters.
    """

    def __init__(
        self, predicting: Predicting, model: Model, served: Served, scope: Scope, known: Sequence[str]
    ) -> None:
        super().__init__(predicting, model, served)
        self._query = _query(scope["query_string"], known)

    def _given(self) -> dict[str, Any]:
        query, payload = self._query, self.read
        if query.segment is not None and payload.per_row.segments is not None:
            raise InputValueError(
                "The segment is given twice.", where=in_body("segments"), found="?segment=", expected="one"
            )
        return {"policy": query.policy, "segment": query.segment, "per_row": payload.per_row}

    @property
    def size(self) -> int:
        """About how many bytes `write` makes."""
        return size_of(self.answer)


class PredictBody(Predicted):
    """A request whose body is that of …/predict."""

    def __init__(
        self, predicting: Predicting, model: Model, served: Served, scope: Scope, known: Sequence[str]
    ) -> None:
        super().__init__(predicting, model, served, scope, known)
        self._content_type = header(scope, b"content-type")

    def quick(self, body: bytes) -> bool:
        """Return whether the body is small, or only wrapped."""
        small = len(body) <= most_at_once(self.served.encoder)
        return small or payloads.media_type_of(self._content_type) in payloads.WRAPPED_TYPES

    def _read(self, body: bytes) -> Payload:
        served, most = self.served, self._predicting.max_rows
        beyond = self.model.beyond
        return payloads.parse(body, self._content_type, served.input, served.encoder, beyond, max_rows=most)


class _Prediction(PredictBody):
    """A request of …/predict."""

    def write(self) -> Written:
        """Return the answer as JSON."""
        return Written(write(self.answer, self._query.top), JSON_HEADERS)


class _Query(NamedTuple):
    """Query parameters: policy to decide with, number of probabilities to show, segment of the rows."""

    policy: str | None = None
    top: int | None = None
    segment: str | None = None


def _query(query_string: bytes, known: Sequence[str]) -> _Query:
    if not query_string:
        return _Query()
    values = query_values(query_string, known)
    top = values.get("top")
    if top is not None and not _TOP.fullmatch(top):
        raise InputValueError(
            "`top` must be an integer of 0 or more.", where=in_query("top"), found=top, expected="0 to 999999999"
        )
    if "segment" in values:
        check_name(values["segment"], "A segment has", in_query("segment"))
    return _Query(values.get("policy"), int(top) if top else None, values.get("segment"))
