"""POST /v2/models/{model}/infer, from the head of a request to its answer; `openapi` documents it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from service.errors import InputValueError, UnknownModelError
from service.inference.names import check_name
from service.open_inference.inferring import Inferring
from service.open_inference.named import own_name
from service.open_inference.request import Inference
from service.open_inference.versions import served_version
from service.operations.predicting import Predicting, Prediction, most_at_once
from service.places import in_body, in_query
from service.rest import compression
from service.rest.bodies import Scope
from service.rest.endpoints import OfAVersion
from service.rest.exchange import Written, query_values
from service.rest.v2.answer import write
from service.rest.v2.body import json_length, parse
from service.serving.model import Model
from service.serving.plane import Served

_WORTH_COMPRESSING: Final = 1024  # many clients accept encodings without being asked; for less it does not pay
_TEXT_PER_BYTE: Final = 6  # of JSON per byte of logits, with all outputs


class Infer(OfAVersion):
    """Answer inference requests."""

    def asked(self, scope: Scope, model_name: str | None, version: str | None) -> Prediction[Inference, Written]:
        """Return the prediction that a request asks for."""
        try:
            model = self.models.get(model_name)
        except UnknownModelError:
            several = None if version is not None else self.models.multilabels.get(model_name)
            if several is None:
                raise
            several.plane.check_room(active := several.served)
            # They have what an inference needs of a model and its revision.
            return _LabelsPrediction(self, cast("Model", several), cast("Served", active), scope)
        served = served_version(model, version)
        model.plane.check_room(served)
        return _Prediction(self, model, served, scope)


class _Prediction(Inferring[Written]):
    """An inference request."""

    def __init__(self, predicting: Predicting, model: Model, served: Served, scope: Scope) -> None:
        super().__init__(predicting, model, served)
        self._query = _query(scope["query_string"])
        self._json_length, self._accepted = _headers(scope)

    def quick(self, body: bytes) -> bool:
        """Return whether the body is small up to the numbers after its JSON, which cost nothing to read."""
        binary = self.served.encoder is None and self.served.input.kind != "tensors"
        length = json_length(self._json_length, len(body)) if binary else len(body)
        return length <= most_at_once(self.served.encoder)

    def _read(self, body: bytes) -> Inference:
        """Return the request in a body, with the policy and the segment of the query."""
        length = json_length(self._json_length, len(body))
        served, query = self.served, self._query
        own = own_name(served.bundle)
        inference = parse(
            *(body, length, served.input, served.encoder),
            max_rows=self._predicting.max_rows,
            own=own,
            beyond=self.model.beyond,
        )
        if query == _NO_QUERY:
            return inference
        given = {name: value for name, value in query._asdict().items() if value is not None}
        given_already = {"policy": inference.policy, "segment": inference.segment or inference.per_row.segments}
        for name in given:
            if (found := given_already[name]) is not None:
                raise InputValueError(
                    f"The {name} is given twice.", where=in_body("parameters", name), found=found, expected="once"
                )
        return replace(inference, **given)

    @property
    def size(self) -> int:
        """About how many bytes `write` has to make, or to compress."""
        return super().size * (1 if self._accepted is None else _TEXT_PER_BYTE)

    def write(self) -> Written:
        """Return the answer as JSON, or with tensors after it."""
        content, before_tensors = write(self.answer, self.read)
        headers = [(b"content-type", b"application/json" if before_tensors is None else b"application/octet-stream")]
        if before_tensors is not None:
            headers.append((b"inference-header-content-length", b"%d" % before_tensors))
        accepted = self._accepted
        if accepted is not None and len(content) >= _WORTH_COMPRESSING and (used := compression.wanted(accepted)):
            content = compression.compress(content, used)
            headers.append((b"content-encoding", used.encode()))
        return Written(content, headers)


class _LabelsPrediction(_Prediction):
    """An inference request for all labels of a multi-label model."""

    def answered(self, answer: Any) -> None:
        """Take the answer, and count it for each label."""
        self.labelled(answer)


def _headers(scope: Scope) -> tuple[str | None, str | None]:
    """Return Inference-Header-Content-Length and Accept-Encoding, in one pass over the headers."""
    length = accepted = None
    for name, value in scope["headers"]:
        if name == b"inference-header-content-length":
            length = str(value, "latin-1") if length is None else f"{length}, {str(value, 'latin-1')}"
        elif name == b"accept-encoding":
            accepted = str(value, "latin-1")
    return length, accepted


class Query(NamedTuple):
    """Query parameters: policy to decide with, segment of the rows."""

    policy: str | None = None
    segment: str | None = None


_NO_QUERY: Final = Query()


def _query(query_string: bytes) -> Query:
    if not query_string:
        return _NO_QUERY
    values = query_values(query_string, Query._fields)
    if "segment" in values:
        check_name(values["segment"], "A segment has", in_query("segment"))
    return Query(**values)
