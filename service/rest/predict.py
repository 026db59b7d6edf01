"""POST /v1/models/{model}/predict as a plain ASGI callable; `predict_openapi` says what it reads and answers."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from service.decisions.certificates import of_segment
from service.decisions.solved import SolvedPolicy
from service.errors import InputValueError
from service.models import Model
from service.plane import Answer, Served
from service.rest import payloads
from service.rest.bodies import Receive, Scope, Send, header, read_body
from service.rest.exchange import LARGE, Predicting, query_values, send_answer, unless_gone

_TOP: Final = re.compile(r"0|[1-9][0-9]{0,8}")


class Predict(Predicting):
    """Reads a body, asks the model's plane, writes the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send, model_name: str | None) -> None:
        """Answer one request; `model_name` None is the default model.

        Raises:
            CandorError: The request cannot be answered; nothing has been sent yet.
            ClientGoneError: Nobody waits for the answer any more.
        """
        model = self._models.get(model_name)
        served = model.served  # this one answers the request from here to its end
        model.plane.check_room(served)
        query = _query(scope["query_string"])
        body = await read_body(scope, receive, self._max_body)
        answer = await unless_gone(receive, self._predict(scope, model, served, body, query))
        answered = time.perf_counter()
        content = orjson.dumps(_document(answer, query.top), option=orjson.OPT_SERIALIZE_NUMPY)
        encoded = time.perf_counter()
        model.plane.stages.encode.add(encoded - answered)
        scope["answer"] = answer
        scope["times"] += (answered, encoded)
        await send_answer(send, answer, content, ((b"content-type", b"application/json"),))

    async def _predict(self, scope: Scope, model: Model, served: Served, body: bytes, query: Query) -> Answer:
        """Decode a body and answer it. Its deadline counts from here: waiting to be decoded is waiting too."""
        arrived = time.perf_counter()
        content_type = header(scope, b"content-type")
        parse = partial(payloads.parse, body, content_type, served.input, served.encoder, max_rows=self._max_rows)
        payload = parse() if len(body) <= LARGE else await self._decoders.run(parse, len(body))
        if query.segment is not None and payload.segments is not None:
            raise InputValueError("The segment is named twice.", where="/segments", found="?segment=", expected="one")
        inputs = await self._decoded(payload.inputs, served, len(body))
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
        return answer


class Query(NamedTuple):
    """What stands in the query: the policy that decides, how many probabilities are shown, the rows' segment."""

    policy: str | None = None
    top: int | None = None
    segment: str | None = None


def _query(query_string: bytes) -> Query:
    if not query_string:
        return Query()
    values = query_values(query_string, Query._fields)
    top = values.get("top")
    if top is not None and not _TOP.fullmatch(top):
        raise InputValueError("`top` must be an integer.", where="?top", found=top, expected="0 to 999999999")
    if "segment" in values:
        payloads.check_name(values["segment"], "A segment has", "?segment")
    return Query(values.get("policy"), int(top) if top else None, values.get("segment"))


def _document(answer: Answer, top: int | None) -> dict[str, Any]:
    served = answer.served
    names = served.labels
    parts = answer.policy.parts if answer.policy is not None else {}
    predictions = []
    for row, prediction_id in enumerate(answer.ids):
        probabilities = answer.probabilities[row]
        if top is None:
            shown = dict(zip(names, probabilities, strict=True))
        else:
            order = np.argsort(-probabilities, kind="stable")[:top]
            shown = {names[column]: probabilities[column] for column in order}
        action = answer.actions[row]
        decision = None if action is None else {"action": action, "label_sought": answer.label_sought[row]}
        if parts and decision is not None:
            segment = answer.segments[row] if answer.segments is not None else None
            decision["segment"] = segment if segment in parts else None
        predictions.append(
            {
                "prediction_id": prediction_id,
                "reference": answer.references[row],
                "label": names[answer.labels[row]],
                "confidence": answer.confidence[row],
                "probabilities": shown,
                "decision": decision,
            }
        )
    return {
        "model": served.revision.model,
        "revision": served.revision.id,
        "policy": None if answer.policy is None else policy_document(answer.policy, answer.segments),
        "predictions": predictions,
    }


def policy_document(solved: SolvedPolicy, segments: Sequence[str | None] | None = None) -> dict[str, Any]:
    """Return what an answer says of the policy that decided: its version and what is certified of each action.

    Of a policy with segments, what is certified of those that the request's rows are of, and the action of all others.
    """
    document = {"id": f"{solved.policy.id}@{solved.version}", "certified": solved.certified}
    if not solved.parts:
        return document
    named = dict.fromkeys(segment for segment in segments or () if segment in solved.parts)
    certified = {value: of_segment(solved.parts[value]) for value in named if value is not None}
    return document | {"fallback": solved.policy.fallback, "segments": certified}
