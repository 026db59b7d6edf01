"""What /docs says of the predict endpoint, which FastAPI does not see."""

from __future__ import annotations

from typing import Any, Final

from service.rest.payloads import FORM_TYPE, IMAGE_TYPES, JSON_TYPE, NPY_TYPES, TEXT_TYPE

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
        "basis": {"enum": ["reference", "traffic", "uploaded"]},
        "window": {"type": ["array", "null"], "items": {"type": "string"}},
        "valid": {"type": "boolean"},
        "reason": {"type": ["string", "null"]},
        "needed": {"type": ["integer", "null"]},
        "segment": {"type": ["string", "null"], "description": "Part of the traffic that it is about; null: all."},
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
                "segment": None,
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


_SEVEN: Final = [
    [0, 0, 32, 207, 255, 143, 0, 0],
    [0, 0, 191, 191, 112, 255, 48, 0],
    [0, 16, 223, 48, 0, 255, 64, 0],
    [0, 0, 0, 64, 159, 255, 96, 0],
    [0, 0, 0, 207, 255, 255, 143, 0],
    [0, 0, 0, 80, 207, 16, 0, 0],
    [0, 0, 0, 175, 143, 0, 0, 0],
    [0, 0, 16, 255, 64, 0, 0, 0],
]
_SEVEN_PNG: Final = (  # the same, as examples/seven.png
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAQklEQVR4nC3KQRGAIBAAwB0SXARsQAQi2MAKNjGCUbABEaxAg/Pjvhd15gXGOLMh3ia7"
    "Ym1xq2Dmn/YZFBzPApEdH8G3EcaBn2t6AAAAAElFTkSuQmCC"
)

_NAMES: Final = {"type": "array", "items": {"type": ["string", "null"], "minLength": 1, "maxLength": 200}}

_JSON: Final = {
    "schema": {
        "type": "object",
        "required": ["inputs"],
        "additionalProperties": False,
        "properties": {
            "inputs": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "anyOf": [
                        {"type": "array", "items": {}, "description": "An example as nested arrays of numbers."},
                        {"type": "string", "description": "An image in base64, or a text."},
                        {
                            "type": "object",
                            "description": "A table's row by column name; null, or no entry, is a missing value.",
                            "additionalProperties": {"type": ["number", "string", "null"]},
                        },
                        {"type": "number", "description": "One example may come without its batch axis."},
                    ]
                },
            },
            "references": {**_NAMES, "description": "Your own ids, one for each input; feedback may come by them."},
            "groups": {**_NAMES, "description": "What each input belongs to: card, patient …"},
            "segments": {**_NAMES, "description": "Part of the traffic that each input belongs to: country, shop …"},
        },
    },
    "examples": {
        "arrays": {
            "summary": "Arrays of numbers",
            "value": {"inputs": [_SEVEN], "references": ["scan-91"]},
        },
        "images": {
            "summary": "Images in base64",
            "value": {"inputs": [_SEVEN_PNG], "references": ["scan-91"]},
        },
        "texts": {"summary": "Texts", "value": {"inputs": ["The shuttle reached orbit.", "For sale: one bike."]}},
        "rows": {
            "summary": "Rows of a table",
            "value": {"inputs": [{"age": 41, "fault": "third party"}, {"age": None, "fault": "driver"}]},
        },
    },
}

_FORM: Final = {
    "schema": {
        "type": "object",
        "required": ["inputs"],
        "additionalProperties": False,
        "properties": {
            "inputs": {
                "type": "array",
                "items": {"type": "string", "format": "binary"},
                "description": "Image files, or texts: a part called `inputs` for each.",
            },
            "references": {"type": "array", "items": {"type": "string"}, "description": "A part for each input."},
            "groups": {"type": "array", "items": {"type": "string"}, "description": "A part for each input."},
            "segments": {"type": "array", "items": {"type": "string"}, "description": "A part for each input."},
        },
    }
}

_ANSWER: Final = {
    "type": "object",
    "properties": {
        "model": {"type": "string"},
        "revision": {"type": "string"},
        "policy": {
            "type": ["object", "null"],
            "properties": {
                "id": {"type": "string"},
                "certified": {"type": "object", "additionalProperties": _CERTIFICATE},
                "fallback": {
                    "type": "string",
                    "description": "With segments: the action of rows of any other, and of one that is not certified.",
                },
                "segments": {
                    "type": "object",
                    "description": "With segments: what is certified of those that the request's rows are of.",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {
                            "uses_fallback": {"type": "boolean"},
                            "certified": {"type": "object", "additionalProperties": _CERTIFICATE},
                        },
                    },
                },
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
                            "segment": {
                                "type": ["string", "null"],
                                "description": "With segments: the policy's segment that the row is of; null: none.",
                            },
                        },
                    },
                },
            },
        },
    },
}

_PARAMETERS: Final = [
    {
        "name": "policy",
        "in": "query",
        "schema": {"type": "string"},
        "description": 'Policy that decides. Left out: the one called "default", or the only one, or none.',
    },
    {
        "name": "top",
        "in": "query",
        "schema": {"type": "integer", "minimum": 0},
        "description": "Only this many probabilities, largest first; 0 for none. Left out: all.",
    },
    {
        "name": "segment",
        "in": "query",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200},
        "description": "Part of the traffic that all inputs belong to, for bodies that cannot name `segments`.",
    },
    {
        "name": "X-Request-ID",
        "in": "header",
        "schema": {"type": "string", "maxLength": 128, "pattern": "^[\\x21-\\x7e]{1,128}$"},
        "description": "Your own name of the request. It comes back with the answer; another is made up otherwise.",
    },
]
_MODEL: Final = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}


def path_item(*, default: bool) -> dict[str, Any]:
    """Return the OpenAPI path item of the predict endpoint.

    Args:
        default: Whether it is /predict, on the default model, which has no path parameter.
    """
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {
        "post": {
            "tags": ["predict"],
            "operationId": "predict_default" if default else "predict",
            "summary": "Predict" + (" with the default model" if default else ""),
            "description": "Calibrated probabilities and, with a policy, a decision for each input. Images may come as "
            "files, as a form, or as base64 in JSON; texts and rows of a table go to models whose bundle carries a "
            "vocabulary or columns.",
            "parameters": _PARAMETERS if default else [_MODEL, *_PARAMETERS],
            "requestBody": {
                "required": True,
                "content": {
                    JSON_TYPE: _JSON,
                    **dict.fromkeys((*NPY_TYPES, *IMAGE_TYPES), binary),
                    FORM_TYPE: _FORM,
                    TEXT_TYPE: {"schema": {"type": "string"}, "example": "The shuttle reached orbit."},
                },
            },
            "responses": {
                "200": {
                    "description": "One prediction for each input, in order.",
                    "headers": {
                        "X-Request-ID": {"schema": {"type": "string"}},
                        "X-Candor-Revision": {
                            "schema": {"type": "string"},
                            "description": "The revision that answered.",
                        },
                    },
                    "content": {JSON_TYPE: {"schema": _ANSWER, "example": _EXAMPLE}},
                },
                "4XX": {"$ref": "#/components/responses/Problem"},
                "5XX": {"$ref": "#/components/responses/Problem"},
            },
        }
    }
