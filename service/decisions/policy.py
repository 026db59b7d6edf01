"""Policies as the service reads them: a document that cannot be used, or does not fit the model, is refused."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from candor.contract.policies import TOP, Policy, ValidationError
from service.errors import PolicyError
from service.places import Place, in_body

_SHOWN: Final = 200  # characters of what was found


def parse_policy(document: Any) -> Policy:
    """Return the policy of a document.

    Args:
        document: Parsed JSON or YAML.

    Raises:
        PolicyError: With `where` as a JSON pointer to the field, what was found and what was expected.

    Example:
        >>> bands = [{"action": "accept", "when": {"min_precision": 0.95}}, {"action": "review"}]
        >>> policy = parse_policy({"id": "auto-read", "bands": bands})
        >>> policy.bands[0].condition
        Condition(name='min_precision', value=0.95, costs=None, rows_per_day=None)
        >>> parse_policy(policy.to_dict()) == policy
        True
    """
    try:
        return Policy.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    told, found = first.get("ctx", {}), first["input"]
    path = (*first["loc"], *told.get("at", ()))
    message, expected, remedy = first["msg"], told.get("expected"), told.get("remedy", "Correct the value.")
    match first["type"]:
        case "missing":
            expected, found = path[-1], sorted(found)
            message, remedy = f"Missing field {expected!r}.", f"Add {expected!r}."
        case "literal_error":
            message, remedy = f"Unknown value {found!r}. Expected: {expected}.", "Use one of these."
        case "tuple_type":
            expected, message, remedy = "a list", "Expected a list.", "Write a list in [ ], even of one item."
        case "too_short":
            expected, message, remedy = "at least one item", "The list is empty.", "Add an item."
    found = told.get("found", found)
    with suppress(RecursionError):  # nested too deeply for a text: the transport says so
        if len(text := str(found)) > _SHOWN:  # such as a whole file of another kind
            found = f"{text[:_SHOWN]}…"
    raise PolicyError(
        message,
        where=Place("body", tuple(path)),
        found=found,
        expected=expected,
        remedy=remedy,
    )


def check_labels(policy: Policy, labels: Sequence[str]) -> None:
    """Refuse a positive class that the model does not have, or that has two meanings.

    Args:
        policy: The policy.
        labels: The model's labels.

    Raises:
        PolicyError: `positive` is neither "top" nor a label, or it is "top" and so is a label, or `labels.silence` is
            not a label.
    """
    if policy.labels is not None and policy.labels.silence not in (None, *labels):
        raise PolicyError(
            f"The model has no label {policy.labels.silence!r}, which silence is to mean.",
            where=in_body("labels", "silence"),
            found=policy.labels.silence,
            expected=list(labels),
            remedy="Name one of the model's labels.",
        )
    if policy.positive == TOP and TOP in labels:
        raise PolicyError(
            'This model has a label "top": the policy could mean that class or the predicted label.',
            where=in_body("positive"),
            found=policy.positive,
            expected=[label for label in labels if label != TOP],
            remedy="Name another label, or export the model with another name for that class.",
        )
    if policy.positive not in (TOP, *labels):
        raise PolicyError(
            f"The model has no label {policy.positive!r}, the policy's positive class.",
            where=in_body("positive"),
            found=policy.positive,
            expected=[TOP, *labels],
            remedy='Name one of the model\'s labels, or "top" for the predicted label.',
        )


def check_shared(policy: Policy, labels: int) -> None:
    """Refuse a policy with promises that does not share delta with the other labels of a multi-label model.

    Args:
        policy: The policy.
        labels: Number of labels of the multi-label model; 1 for other models.

    Raises:
        PolicyError: `certify.labels` is smaller.
    """
    if policy.claims and policy.certify.sharing < labels:
        raise PolicyError(
            f"The model predicts one of {labels} labels of a multi-label model, and all of them share delta.",
            where=in_body("certify", "labels"),
            found=policy.certify.sharing,
            expected=labels,
            remedy=f"Write certify: {{delta: {policy.certify.delta:g}, labels: {labels}}}. The promises of all labels "
            "then hold together.",
        )
