"""Answers of the control plane as HTTP responses."""

from __future__ import annotations

from fastapi import Response

from candor.contract.documents import Answer


def sent(answer: Answer, status: int = 200, **headers: str) -> Response:
    """Return an answer as JSON, without the fields that it leaves unset.

    Parts that were stored as documents are sent as they were stored, also those of an earlier version.
    """
    content = answer.model_dump_json(exclude_unset=True, warnings=False)
    return Response(content, status, headers, media_type="application/json")
