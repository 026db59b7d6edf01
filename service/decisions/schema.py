"""A JSON Schema of policies, for editors: made from what `policy` reads, so that neither can drift from the other."""

from __future__ import annotations

from typing import Any, Final

from service.decisions.bands import Explore
from service.decisions.conditions import CONDITIONS, REVIEW
from service.decisions.documents import NAME
from service.decisions.policy import (
    FIELDS,
    LONGEST_SEGMENT,
    LOOKS,
    ON_CALIBRATOR_CHANGE,
    ON_INVALID,
    ON_UNCERTIFIABLE,
    SMALLEST_DELTA,
    TOP,
    Certify,
)

_OPEN: Final = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
_POSITIVE: Final = {"type": "number", "exclusiveMinimum": 0}
_NAME: Final = {"type": "string", "pattern": f"^{NAME.pattern}$"}

_ABOUT: Final = {
    "min_probability": "Takes rows whose calibrated probability is at least this. Fixed; promises nothing.",
    "cost": "Takes rows for which the action has the least expected cost. Fixed; promises nothing.",
    "min_precision": "Of the rows at or above the threshold, at least this share is positive. Certified.",
    "min_recall": "Of all positives, at least this share is at or above the threshold. Certified.",
    "max_false_positive_rate": "Of all negatives, at most this share is at or above the threshold. Certified.",
    "max_flag_rate": "Of all traffic, at most this share is at or above the threshold or explored. Certified.",
    "max_selective_risk": "Of the rows at or above the threshold, at most this share is not positive. Certified.",
}


def policy_schema() -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) that takes every policy document that `Policy.from_dict` takes.

    What it cannot say (that bands are in order, that actions exist) `candor policy lint` does.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Candor policy",
        "type": "object",
        "required": ["id", "bands"],
        "additionalProperties": False,
        "properties": {field: _FIELD[field] for field in FIELDS},
    }


def _condition(name: str) -> dict[str, Any]:
    if name == "cost":
        content: dict[str, Any] = {
            "type": "object",
            "required": ["false_positive", "false_negative"],
            "additionalProperties": False,
            "properties": dict.fromkeys(("false_positive", "false_negative", "review"), _POSITIVE),
        }
    elif CONDITIONS[name].metric is None:
        content = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    else:
        content = dict(_OPEN)
    return content | {"description": _ABOUT[name]}


_FIELD: Final[dict[str, dict[str, Any]]] = {
    "id": _NAME | {"description": "Name of the policy."},
    "positive": {
        "type": "string",
        "minLength": 1,
        "default": TOP,
        "description": f"A label of the model, or {TOP!r} for the predicted label.",
    },
    "bands": {
        "type": "array",
        "minItems": 1,
        "description": "From the top; the first band that takes a row decides. The last one has no condition.",
        "items": {
            "type": "object",
            "required": ["action"],
            "additionalProperties": False,
            "properties": {
                "action": _NAME | {"description": f"{REVIEW!r} means that a person labels the row."},
                "when": {
                    "type": ["object", "null"],
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": False,
                    "properties": {name: _condition(name) for name in CONDITIONS},
                },
            },
        },
    },
    "certify": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "delta": {
                "type": "number",
                "minimum": SMALLEST_DELTA,
                "exclusiveMaximum": 1,
                "default": Certify().delta,
                "description": "Probability that any promise of the policy is false.",
            },
            "looks": {
                "enum": list(LOOKS),
                "default": Certify().looks,
                "description": "Whether labelled rows may certify again, each time for a smaller share of delta.",
            },
        },
    },
    "explore": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "share": {
                "type": "number",
                "minimum": 0,
                "maximum": 1,
                "default": Explore().share,
                "description": "Probability that the label of a row with one of these actions is sought.",
            },
            "actions": {"type": "array", "items": _NAME, "description": "Actions of the bands."},
        },
    },
    "on_calibrator_change": {
        "enum": list(ON_CALIBRATOR_CHANGE),
        "default": ON_CALIBRATOR_CHANGE[0],
        "description": "When a refit changes the calibrator: thresholds are solved anew, or stay and are tested again.",
    },
    "on_uncertifiable": {
        "enum": list(ON_UNCERTIFIABLE),
        "default": ON_UNCERTIFIABLE[0],
        "description": "While a promise cannot be certified: every row to review; the same rows as before, where a "
        "refit keeps their order; or the policy is refused.",
    },
    "on_invalid": {
        "enum": list(ON_INVALID),
        "default": ON_INVALID[0],
        "description": "A threshold that has stayed and lost its certificate: it decides, or every row goes to review.",
    },
    "segments": {
        "type": ["object", "null"],
        "required": ["values"],
        "additionalProperties": False,
        "properties": {
            "values": {
                "type": "array",
                "minItems": 1,
                "uniqueItems": True,
                "items": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": LONGEST_SEGMENT,
                    "pattern": r"^[^\x00]*$",
                },
                "description": "Segments of a request's rows that have thresholds and certificates of their own.",
            },
            "fallback": _NAME
            | {"default": REVIEW, "description": "Action of all other rows, and of segments that cannot be certified."},
        },
    },
}
