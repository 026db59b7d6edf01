"""POST /v1/models/{model}/predict as a plain ASGI callable; `predict_openapi` documents it."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Final, NamedTuple

from service.errors import InputValueError
from service.inference.names import check_name
from service.operations.predicting import Predicting, most_at_once
from service.places import in_body, in_query
from service.rest import payloads
from service.rest.answer import size_of, write
from service.rest.bodies import Receive, Scope, Send, header, read_body
from service.rest.exchange import query_values, send_answer, unless_gone
from service.serving.model import Model
from service.serving.plane import Answer, Served

_TOP: Final = re.compile(r"0|[1-9][0-9]{0,8}")


class Predict(Predicting):
    """Read a body, ask the plane of the model, write the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send, model_name: str | None) -> None:
        """Answer one request. `model_name` None selects the default model.

        Raises:
            CandorError: The request cannot be answered. Nothing has been sent yet.
            ClientGoneError: The client closed the connection.
        """
        model = self._models.get(model_name)
        served = model.served  # answers this request to its end, whatever is activated meanwhile
        model.plane.check_room(served)
        query = _query(scope["query_string"])
        body = await read_body(scope, receive, self._max_body)
        answer = await unless_gone(receive, self._predict(scope, model, served, body, query))
        answered = time.perf_counter()
        content = await self._aside(partial(write, answer, query.top), size_of(answer))
        encoded = time.perf_counter()
        model.plane.stages.encode.add(encoded - answered)
        scope["answer"] = answer
        scope["times"] += (answered, encoded)
        await send_answer(send, answer, content, ((b"content-type", b"application/json"),))

    async def _predict(self, scope: Scope, model: Model, served: Served, body: bytes, query: Query) -> Answer:
        """Decode a body and answer it. The deadline starts here, so it covers the wait for a decoder."""
        arrived = time.perf_counter()
        content_type = header(scope, b"content-type")
        parse = partial(payloads.parse, body, content_type, served.input, served.encoder, max_rows=self._max_rows)
        quick = (
            len(body) <= most_at_once(served.encoder) or payloads.media_type_of(content_type) in payloads.WRAPPED_TYPES
        )
        payload, inputs = await self._read(parse, served, len(body), quick=quick)
        if query.segment is not None and payload.segments is not None:
            raise InputValueError(
                "The segment is given twice.", where=in_body("segments"), found="?segment=", expected="one"
            )
        decoded = time.perf_counter()
        scope["times"] = (arrived, decoded)
        model.plane.stages.decode.add(decoded - arrived)
        answer = await model.plane.predict(
            served,
            inputs,
            deadline_s=self._deadline_s - (decoded - arrived),
            policy=query.policy,
            references=payload.references,
            groups=payload.groups,
            segments=query.segment if payload.segments is None else payload.segments,
        )
        self._metrics.predicted(answer, time.perf_counter() - decoded)
        self._count_absent(model.name, served, inputs, payload.absent)
        return answer


class Query(NamedTuple):
    """Query parameters: policy to decide with, number of probabilities to show, segment of the rows."""

    policy: str | None = None
    top: int | None = None
    segment: str | None = None


def _query(query_string: bytes) -> Query:
    if not query_string:
        return Query()
    values = query_values(query_string, Query._fields)
    top = values.get("top")
    if top is not None and not _TOP.fullmatch(top):
        raise InputValueError("`top` must be an integer.", where=in_query("top"), found=top, expected="0 to 999999999")
    if "segment" in values:
        check_name(values["segment"], "A segment has", in_query("segment"))
    return Query(values.get("policy"), int(top) if top else None, values.get("segment"))
