"""Read the policies in force, and propose new or changed ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from candor.contract.certificates import SolvedPolicy
from candor.contract.policies import Policy
from candor.contract.revisions import PolicyProposal
from service.decisions import solved as domain
from service.decisions.certificates import warnings
from service.decisions.policy import parse_policy
from service.decisions.revision import Revision
from service.errors import InputValueError, PolicyError, UnknownPolicyError
from service.operations.principal import Principal
from service.operations.revisions import described
from service.places import Place, in_body
from service.runtime import Runtime
from service.serving.model import Model
from service.serving.plane import Served


def in_force(served: Served, policy: str) -> domain.SolvedPolicy:
    """Return a policy of the active revision.

    Raises:
        UnknownPolicyError: The revision has no such policy.
    """
    try:
        return served.policies[policy]
    except KeyError:
        raise UnknownPolicyError(
            f"Revision {served.revision.id} has no policy {policy!r}.",
            where="policy",
            found=policy,
            expected=sorted(served.policies),
            remedy="Name one of these. A simulation also takes a `document`.",
        ) from None


def get_policy(model: Model, policy: str) -> SolvedPolicy:
    """Return a policy as it is in force, with its thresholds and certificates.

    Raises:
        UnknownPolicyError: The active revision has no such policy.
    """
    return SolvedPolicy.model_validate(in_force(model.served, policy).to_dict())


def put_policy(
    runtime: Runtime, model: Model, policy: str, document: Mapping[str, Any], *, by: Principal
) -> PolicyProposal:
    """Propose a new or changed policy, solved on the reference rows; `warnings` say what is not certified.

    Raises:
        PolicyError: The document cannot be used, names an unknown label, or must be certified and cannot be.
        InputValueError: Its id is not `policy`.
    """
    revision = propose(runtime, model, policy, document, where=in_body(), by=by)
    state = runtime.revisions.states(model.name)[revision.id]
    solved = revision.policies[policy]
    return PolicyProposal(
        **described(revision, state),
        policy=SolvedPolicy.model_validate(solved.to_dict()),
        warnings=tuple(warnings(solved)),
    )


def propose(
    runtime: Runtime, model: Model, policy: str, document: Mapping[str, Any], *, where: Place, by: Principal
) -> Revision:
    """Return the revision that puts a policy document into force; the active one where it is in force already.

    Args:
        runtime: The running service.
        model: The model.
        policy: Id that the document must have, if it has one.
        document: The policy document.
        where: Place of the document in the request, for errors.
        by: Who proposes it.

    Raises:
        PolicyError: The document cannot be used, names an unknown label, or must be certified and cannot be.
        InputValueError: Its id is not `policy`.
    """
    with inside(where):
        wanted = parsed(policy, document, where)
        return runtime.models.propose_policy(model.name, wanted, by=by.name, by_key=by.prefix)


def parsed(policy: str, document: Mapping[str, Any], where: Place) -> Policy:
    """Return the policy of a document.

    Args:
        policy: Id that the document must have, if it has one.
        document: The policy document.
        where: Place of the document in the request, for errors.

    Raises:
        PolicyError: The document cannot be used; the place is that in the document, see `inside`.
        InputValueError: Its id is not `policy`.
    """
    wanted = parse_policy({"id": policy, **document})
    if wanted.id != policy:
        raise InputValueError(
            "The id of the policy differs from the id in the path.",
            where=where / "id",
            found=wanted.id,
            expected=policy,
        )
    return wanted


@contextmanager
def inside(where: Place) -> Iterator[None]:
    """Change the places in errors about a policy document to those in the request that contains it at `where`."""
    try:
        yield
    except PolicyError as error:
        if isinstance(error.place, Place):
            error.place = Place(where.kind, (*where.parts, *error.place.parts))
        raise
