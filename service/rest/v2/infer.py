"""POST /v2/models/{model}/infer as a plain ASGI callable; `openapi` says what it reads and answers."""

from __future__ import annotations

import time
from functools import partial
from typing import Final, NamedTuple

from service.errors import InputValueError
from service.models import Model
from service.plane import Answer, Served
from service.rest import compression
from service.rest.bodies import Receive, Scope, Send, read_body
from service.rest.exchange import LARGE, Predicting, query_values, send_answer, unless_gone
from service.rest.payloads import check_name
from service.rest.v2.answer import write
from service.rest.v2.errors import rows_of_the_tensor
from service.rest.v2.request import Inference, json_length, parse
from service.rest.v2.versions import served_version

_WORTH_COMPRESSING: Final = 1024  # many clients accept encodings without being asked; for less it does not pay


class Infer(Predicting):
    """Reads a request of the protocol, asks the model's plane, writes the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send, model_name: str, version: str | None) -> None:
        """Answer one request; `version` None is the active revision.

        Raises:
            CandorError: The request cannot be answered; nothing has been sent yet.
            ClientGoneError: Nobody waits for the answer any more.
        """
        model = self._models.get(model_name)
        served = served_version(model, version)  # this one answers the request from here to its end
        model.plane.check_room(served)
        query = _query(scope["query_string"])
        header, accepted = _headers(scope)
        body = await read_body(scope, receive, self._max_body)
        answer, inference = await unless_gone(receive, self._infer(scope, model, served, body, header, query))
        answered = time.perf_counter()
        put = partial(write, answer, inference)
        small = answer.logits.nbytes <= LARGE
        content, before_tensors = put() if small else await self._decoders.run(put, answer.logits.nbytes)
        headers = [(b"content-type", b"application/json" if before_tensors is None else b"application/octet-stream")]
        if before_tensors is not None:
            headers.append((b"inference-header-content-length", b"%d" % before_tensors))
        if accepted is not None and len(content) >= _WORTH_COMPRESSING and (used := compression.wanted(accepted)):
            compress = partial(compression.compress, content, used)
            content = compress() if len(content) <= LARGE else await self._decoders.run(compress, len(content))
            headers.append((b"content-encoding", used.encode()))
        encoded = time.perf_counter()
        model.plane.stages.encode.add(encoded - answered)
        scope["answer"] = answer
        scope["times"] += (answered, encoded)
        await send_answer(send, answer, content, headers)

    async def _infer(
        self, scope: Scope, model: Model, served: Served, body: bytes, header: str | None, query: Query
    ) -> tuple[Answer, Inference]:
        """Parse a body and answer it. Its deadline counts from here: waiting to be parsed is waiting too."""
        arrived = time.perf_counter()
        length = json_length(header, len(body))
        read = partial(parse, body, length, served.input, served.encoder, max_rows=self._max_rows)
        # Numbers behind the JSON cost nothing to read, texts do.
        quick = (length if served.encoder is None else len(body)) <= LARGE
        inference = read() if quick else await self._decoders.run(read, len(body))
        for name in Query._fields:
            in_body = getattr(inference, name)
            if getattr(query, name) is not None and in_body is not None:
                raise InputValueError(
                    f"The {name} is named twice.", where=f"/parameters/{name}", found=in_body, expected="once"
                )
        with rows_of_the_tensor(inference.where):
            inputs = await self._decoded(inference.inputs, served, len(body))
            decoded = time.perf_counter()
            scope["times"] = (arrived, decoded)
            model.plane.stages.decode.add(decoded - arrived)
            deadline_s = self._deadline_s if inference.timeout_s is None else min(inference.timeout_s, self._deadline_s)
            answer = await model.plane.predict(
                served,
                inputs,
                deadline_s=deadline_s - (decoded - arrived),
                policy=query.policy or inference.policy,
                references=inference.references,
                groups=inference.groups,
                segments=query.segment or inference.segment,
            )
        self._metrics.predicted(answer, time.perf_counter() - decoded)
        return answer, inference


def _headers(scope: Scope) -> tuple[str | None, str | None]:
    """Return Inference-Header-Content-Length and Accept-Encoding, found in one pass."""
    length = accepted = None
    for name, value in scope["headers"]:
        if name == b"inference-header-content-length":
            length = str(value, "latin-1") if length is None else f"{length}, {str(value, 'latin-1')}"
        elif name == b"accept-encoding":
            accepted = str(value, "latin-1")
    return length, accepted


class Query(NamedTuple):
    """What stands in the query: the policy that decides, and the rows' segment."""

    policy: str | None = None
    segment: str | None = None


def _query(query_string: bytes) -> Query:
    if not query_string:
        return Query()
    values = query_values(query_string, Query._fields)
    if "segment" in values:
        check_name(values["segment"], "A segment has", "?segment")
    return Query(**values)
