"""OpenAPI documentation of the predict endpoint, which FastAPI does not see."""

from __future__ import annotations

from typing import Any, Final

from candor.contract.labels import LabelsPredictions, LabelsScoredRequest
from candor.contract.predictions import PredictionRequest, Predictions, ScoredRequest
from service.inference.per_row import PER_ROW
from service.rest.payloads import FORM_TYPE, IMAGE_TYPES, JSON_TYPE, NPY_TYPES, TEXT_TYPE
from service.rest.schemas import ref

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
_SEVEN_PNG: Final = (  # the same image, see examples/seven.png
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAQklEQVR4nC3KQRGAIBAAwB0SXARsQAQi2MAKNjGCUbABEaxAg/Pjvhd15gXGOLMh3ia7"
    "Ym1xq2Dmn/YZFBzPApEdH8G3EcaBn2t6AAAAAElFTkSuQmCC"
)

_JSON: Final = {
    "schema": {"anyOf": [ref(PredictionRequest), ref(ScoredRequest)]},
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
        "tensors": {
            "summary": "Rows of several tensors",
            "value": {"inputs": [{"ids": [7, 2, 19, 4, 0], "mask": [True, True, True, True, False]}]},
        },
        "scores": {"summary": "Scores of a model that others run", "value": {"scores": [0.93, 0.02]}},
    },
}

_LABELS_JSON: Final = {
    "schema": {"anyOf": [ref(PredictionRequest), ref(LabelsScoredRequest)]},
    "examples": {
        "texts": {"summary": "Texts", "value": {"inputs": ["Have a nice day."], "references": ["post-7"]}},
        "scores": {"summary": "Scores of a model that others run", "value": {"scores": [[0.9, 0.02, 0.3]]}},
    },
}

FORM: Final = {
    "type": "object",
    "description": "Images or texts, one part each, and names and amounts of the rows.",
    "required": ["inputs"],
    "additionalProperties": False,
    "properties": {
        "inputs": {
            "type": "array",
            "items": {"type": "string", "format": "binary"},
            "description": "Image files or texts, one part `inputs` each.",
        },
        **{
            name: {"type": "array", "items": {"type": "string"}, "description": "One part per input."}
            for name in PER_ROW
        },
    },
}
"""Schema of a form, `PredictionForm` in the document."""

_PARAMETERS: Final = [
    {
        "name": "policy",
        "in": "query",
        "schema": {"type": "string"},
        "description": 'Policy to decide with. Default: the policy "default", or the only policy, or none.',
    },
    {
        "name": "top",
        "in": "query",
        "schema": {"type": "integer", "minimum": 0},
        "description": "Number of probabilities to return, largest first; 0 for none. Default: all.",
    },
    {
        "name": "segment",
        "in": "query",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200},
        "description": "Segment of all inputs, for bodies without `segments`.",
    },
    {
        "name": "X-Request-ID",
        "in": "header",
        "schema": {"type": "string", "maxLength": 128, "pattern": "^[\\x21-\\x7e]{1,128}$"},
        "description": "Your name of the request, returned with the answer. Default: a generated one.",
    },
]
MODEL: Final = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
"""Parameter of paths with the name of a model."""


def labels_path_item() -> dict[str, Any]:
    """Return the OpenAPI path item of the predict endpoint of multi-label models."""
    (item,) = path_item(default=False).values()
    ok = dict(item["responses"]["200"], content={JSON_TYPE: {"schema": ref(LabelsPredictions)}})
    changed = {
        "tags": ["labels"],
        "operationId": "predict_labels",
        "summary": "Predict all labels",
        "description": "Calibrated probabilities and decisions of all labels of a multi-label model. Send inputs as to "
        "`/v1/models/{model}/predict`; a model that others run takes a list of scores per row, one for each label.",
        "parameters": [each for each in item["parameters"] if each["name"] != "top"],
        "requestBody": dict(item["requestBody"], content=item["requestBody"]["content"] | {JSON_TYPE: _LABELS_JSON}),
        "responses": dict(item["responses"], **{"200": ok}),
    }
    return {"post": dict(item, **changed)}


def path_item(*, default: bool) -> dict[str, Any]:
    """Return the OpenAPI path item of the predict endpoint.

    Args:
        default: Whether the path is /predict, for the default model.
    """
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {
        "post": {
            "tags": ["predict"],
            "operationId": "predict_default" if default else "predict",
            "summary": "Predict" + (" with the default model" if default else ""),
            "description": "Calibrated probabilities and, with a policy, a decision for each input. Send images as "
            "files, as a form, or as base64 in JSON. Texts and table rows require a bundle with a "
            "vocabulary or tokenizer, or with columns. A model that others run takes its scores: `scores`, "
            "`probabilities` or `logits`.",
            "parameters": _PARAMETERS if default else [MODEL, *_PARAMETERS],
            "requestBody": {
                "required": True,
                "content": {
                    JSON_TYPE: _JSON,
                    **dict.fromkeys((*NPY_TYPES, *IMAGE_TYPES), binary),
                    FORM_TYPE: {"schema": {"$ref": "#/components/schemas/PredictionForm"}},
                    TEXT_TYPE: {"schema": {"type": "string"}, "example": "The shuttle reached orbit."},
                },
            },
            "responses": {
                "200": {
                    "description": "One prediction per input, in order.",
                    "headers": {
                        "X-Request-ID": {"schema": {"type": "string"}},
                        "X-Candor-Revision": {
                            "schema": {"type": "string"},
                            "description": "The revision that answered.",
                        },
                    },
                    "content": {JSON_TYPE: {"schema": ref(Predictions)}},
                },
                "4XX": {"$ref": "#/components/responses/Problem"},
                "5XX": {"$ref": "#/components/responses/Problem"},
            },
        }
    }
