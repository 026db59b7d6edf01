"""POST /v2/models/{model}/infer as a plain ASGI callable; `openapi` documents it."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from service.errors import InputValueError
from service.inference.names import check_name
from service.open_inference.inferring import Inferring
from service.open_inference.named import own_name
from service.open_inference.request import Inference
from service.open_inference.versions import served_version
from service.operations.predicting import most_at_once
from service.places import in_body, in_query
from service.rest import compression
from service.rest.bodies import Receive, Scope, Send, read_body
from service.rest.exchange import query_values, send_answer, unless_gone
from service.rest.v2.answer import write
from service.rest.v2.body import json_length, parse
from service.serving.plane import Served

_WORTH_COMPRESSING: Final = 1024  # many clients accept encodings without being asked; for less it does not pay


class Infer(Inferring):
    """Read a request, ask the plane of the model, write the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send, model_name: str, version: str | None) -> None:
        """Answer one request. `version` None selects the active revision.

        Raises:
            CandorError: The request cannot be answered. Nothing has been sent yet.
            ClientGoneError: The client closed the connection.
        """
        model = self._models.get(model_name)
        served = served_version(model, version)  # answers this request to its end, whatever is activated meanwhile
        model.plane.check_room(served)
        query = _query(scope["query_string"])
        header, accepted = _headers(scope)
        body = await read_body(scope, receive, self._max_body)
        length = json_length(header, len(body))
        read = partial(_read, body, length, served, query, self._max_rows)
        # Numbers after the JSON cost nothing to read; texts take time.
        binary = served.encoder is None and served.input.kind != "tensors"
        quick = (length if binary else len(body)) <= most_at_once(served.encoder)
        inferring = self._inferred(model, served, read, len(body), quick=quick)
        answer, inference, arrived, decoded = await unless_gone(receive, inferring)
        answered = time.perf_counter()
        content, before_tensors = await self._aside(partial(write, answer, inference), answer.logits.nbytes)
        headers = [(b"content-type", b"application/json" if before_tensors is None else b"application/octet-stream")]
        if before_tensors is not None:
            headers.append((b"inference-header-content-length", b"%d" % before_tensors))
        if accepted is not None and len(content) >= _WORTH_COMPRESSING and (used := compression.wanted(accepted)):
            content = await self._aside(partial(compression.compress, content, used), len(content))
            headers.append((b"content-encoding", used.encode()))
        encoded = time.perf_counter()
        model.plane.stages.encode.add(encoded - answered)
        scope["answer"] = answer
        scope["times"] = (arrived, decoded, answered, encoded)
        await send_answer(send, answer, content, headers)


def _read(body: bytes, length: int, served: Served, query: Query, max_rows: int) -> Inference:
    """Return the request in a body, with the policy and the segment of the query."""
    own = own_name(served.bundle)
    inference = parse(body, length, served.input, served.encoder, max_rows=max_rows, own=own)
    if query == _NO_QUERY:
        return inference
    given = {name: value for name, value in query._asdict().items() if value is not None}
    for name in given:
        if (found := getattr(inference, name)) is not None:
            raise InputValueError(
                f"The {name} is given twice.", where=in_body("parameters", name), found=found, expected="once"
            )
    return replace(inference, **given)


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
