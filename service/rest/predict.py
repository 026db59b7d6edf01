"""POST /v1/models/{model}/predict as a plain ASGI callable, with its OpenAPI document beside it."""

from __future__ import annotations

import asyncio
import re
import time
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

import numpy as np
import orjson

from service.decisions.decide import SolvedPolicy
from service.errors import InputValueError
from service.metrics import Metrics
from service.models import Models
from service.plane import Answer
from service.rest import payloads
from service.rest.bodies import ClientGoneError, Receive, Scope, Send, header, read_body
from service.settings import Settings

_LARGE_BODY: Final = 64 * 1024
_POSITIVE: Final = re.compile(r"[1-9][0-9]{0,8}")


class Predict:
    """Reads a body, asks the model's plane, writes the answer.

    Args:
        models: The models of this process.
        settings: Limits and deadline.
        metrics: Where requests are counted.
    """

    def __init__(self, models: Models, settings: Settings, metrics: Metrics) -> None:
        self._models = models
        self._max_pixels = settings.max_pixels
        self._max_body = settings.max_body_bytes
        self._deadline_s = settings.deadline_s
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send, model_name: str | None) -> None:
        """Answer one request; `model_name` None is the default model.

        Raises:
            CandorError: The request cannot be answered; nothing has been sent yet.
            ClientGoneError: Nobody waits for the answer any more.
        """
        model = self._models.get(model_name)
        served = model.served  # this one answers the request from here to its end
        policy, top = _query(scope["query_string"])
        body = await read_body(scope, receive, self._max_body)
        media_type = payloads.media_type_of(header(scope, b"content-type"))
        parse = partial(payloads.parse, body, media_type, served.input, max_pixels=self._max_pixels)
        # What takes long to decode must not hold up everyone else's requests.
        slow = len(body) > _LARGE_BODY or media_type in payloads.IMAGE_TYPES
        payload = await asyncio.to_thread(parse) if slow else parse()
        started = time.perf_counter()
        answer = await _unless_gone(
            receive,
            model.plane.predict(
                served,
                payload.inputs,
                deadline_s=self._deadline_s,
                policy=policy,
                references=payload.references,
                groups=payload.groups,
            ),
        )
        self._metrics.predicted(answer, time.perf_counter() - started)
        content = orjson.dumps(_document(answer, top), option=orjson.OPT_SERIALIZE_NUMPY)
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", b"application/json"),
                    (b"content-length", str(len(content)).encode()),
                    (b"x-candor-revision", answer.served.revision.id.encode()),
                ],
            }
        )
        await send({"type": "http.response.body", "body": content})


async def _unless_gone(receive: Receive, prediction: Any) -> Answer:
    """Wait for a prediction; give it up, so that it is dropped from the queue, when the client goes."""
    answer = asyncio.ensure_future(prediction)
    gone = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientGoneError
        result: Answer = answer.result()
        return result
    finally:
        gone.cancel()
        answer.cancel()


def _query(query_string: bytes) -> tuple[str | None, int | None]:
    if not query_string:
        return None, None
    values = dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True))
    unknown = sorted(values.keys() - {"policy", "top"})
    if unknown:
        raise InputValueError(
            "Unknown query parameter.", where=f"?{unknown[0]}", found=unknown[0], expected=["policy", "top"]
        )
    top = values.get("top")
    if top is not None and not _POSITIVE.fullmatch(top):
        raise InputValueError("`top` must be a positive integer.", where="?top", found=top, expected="1 to 999999999")
    return values.get("policy"), int(top) if top else None


def _document(answer: Answer, top: int | None) -> dict[str, Any]:
    served = answer.served
    names = served.labels
    predictions = []
    for row, prediction_id in enumerate(answer.ids):
        probabilities = answer.probabilities[row]
        if top is None:
            shown = dict(zip(names, probabilities, strict=True))
        else:
            order = np.argsort(-probabilities, kind="stable")[:top]
            shown = {names[column]: probabilities[column] for column in order}
        action = answer.actions[row]
        predictions.append(
            {
                "prediction_id": prediction_id,
                "reference": answer.references[row],
                "label": names[answer.labels[row]],
                "confidence": answer.confidence[row],
                "probabilities": shown,
                "decision": None if action is None else {"action": action, "label_sought": answer.label_sought[row]},
            }
        )
    return {
        "model": served.revision.model,
        "revision": served.revision.id,
        "policy": None if answer.policy is None else policy_document(answer.policy),
        "predictions": predictions,
    }


def policy_document(solved: SolvedPolicy) -> dict[str, Any]:
    """Return what an answer says of the policy that decided: its version and what is certified of each action."""
    certified = {band.action: band.certificate.to_dict() for band in solved.bands if band.certificate is not None}
    return {"id": f"{solved.policy.id}@{solved.version}", "certified": certified}


_CERTIFICATE: Final = {
    "type": "object",
    "description": "What held-out labelled rows certify of an action.",
    "properties": {
        "metric": {"type": "string"},
        "at_least": {"type": ["number", "null"]},
        "at_most": {"type": ["number", "null"]},
        "delta": {"type": "number"},
        "n": {"type": "integer"},
        "errors": {"type": ["integer", "null"]},
        "looks": {"type": "integer"},
        "basis": {"enum": ["reference", "traffic"]},
        "window": {"type": ["array", "null"], "items": {"type": "string"}},
        "valid": {"type": "boolean"},
        "reason": {"type": ["string", "null"]},
        "needed": {"type": ["integer", "null"]},
    },
}

_EXAMPLE: Final = {
    "model": "digits",
    "revision": "r7",
    "policy": {
        "id": "auto-read@3",
        "certified": {
            "accept": {
                "metric": "precision",
                "at_least": 0.95,
                "at_most": None,
                "delta": 0.025,
                "n": 189,
                "errors": 3,
                "looks": 1,
                "basis": "reference",
                "window": None,
                "valid": True,
                "reason": None,
                "needed": None,
            }
        },
    },
    "predictions": [
        {
            "prediction_id": "01K0ZJ6Z3V8Q2W4X6Y8A0C2E4G",
            "reference": "scan-91",
            "label": "7",
            "confidence": 0.9312,
            "probabilities": {"7": 0.9312, "9": 0.0411},
            "decision": {"action": "accept", "label_sought": False},
        }
    ],
}


def openapi(*, default: bool) -> dict[str, Any]:
    """Return the path item of the predict endpoint.

    Args:
        default: Whether it is /predict, on the default model, which has no path parameter.
    """
    parameters: list[dict[str, Any]] = [
        {
            "name": "policy",
            "in": "query",
            "schema": {"type": "string"},
            "description": 'Policy that decides. Left out: the one called "default", or the only one, or none.',
        },
        {
            "name": "top",
            "in": "query",
            "schema": {"type": "integer", "minimum": 1},
            "description": "Only this many probabilities, largest first.",
        },
    ]
    if not default:
        parameters.insert(0, {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}})
    binary = {"schema": {"type": "string", "format": "binary"}}
    json_body = {
        "schema": {
            "type": "object",
            "required": ["inputs"],
            "additionalProperties": False,
            "properties": {
                "inputs": {"type": "array", "items": {}, "description": "Examples as nested arrays of numbers."},
                "references": {"type": "array", "items": {"type": ["string", "null"]}, "description": "Your own ids."},
                "groups": {
                    "type": "array",
                    "items": {"type": ["string", "null"]},
                    "description": "What each row belongs to: card, patient …",
                },
            },
        },
        "example": {"inputs": [[[0, 0, 80, 208], [0, 176, 255, 64]]], "references": ["scan-91"]},
    }
    answer_schema = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "revision": {"type": "string"},
            "policy": {
                "type": ["object", "null"],
                "properties": {
                    "id": {"type": "string"},
                    "certified": {"type": "object", "additionalProperties": _CERTIFICATE},
                },
            },
            "predictions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "prediction_id": {"type": "string"},
                        "reference": {"type": ["string", "null"]},
                        "label": {"type": "string"},
                        "confidence": {"type": "number"},
                        "probabilities": {"type": "object", "additionalProperties": {"type": "number"}},
                        "decision": {
                            "type": ["object", "null"],
                            "properties": {
                                "action": {"type": "string"},
                                "label_sought": {"type": "boolean", "description": "Please send a label for this one."},
                            },
                        },
                    },
                },
            },
        },
    }
    return {
        "post": {
            "tags": ["predict"],
            "operationId": "predict_default" if default else "predict",
            "summary": "Predict" + (" with the default model" if default else ""),
            "description": "Calibrated probabilities and, with a policy, a decision for each input.",
            "parameters": parameters,
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": json_body,
                    **dict.fromkeys((*payloads.NPY_TYPES, *payloads.IMAGE_TYPES), binary),
                },
            },
            "responses": {
                "200": {
                    "description": "One prediction for each input, in order.",
                    "content": {"application/json": {"schema": answer_schema, "example": _EXAMPLE}},
                },
                "4XX": {"$ref": "#/components/responses/Problem"},
                "5XX": {"$ref": "#/components/responses/Problem"},
            },
        }
    }
