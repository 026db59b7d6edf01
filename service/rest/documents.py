"""JSON bodies that say what to do: each name of an object once, since only the last of two values would count."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from candor.contract.documents import each_name_once
from service.errors import MalformedBodyError
from service.rest.payloads import load_json


def load_document(body: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        MalformedBodyError: The body is not JSON (NaN and Infinity are not), not an object, or has a name twice.
    """
    document = load_json(body)
    try:
        with suppress(RecursionError):  # no document that is used is as deep
            json.loads(body, object_pairs_hook=each_name_once)
    except ValueError as error:
        raise MalformedBodyError(f"The body is not valid JSON: {error}.", expected="JSON") from error
    return document


class _Request(Request):
    """A request whose JSON has each name once."""

    async def json(self) -> Any:
        """Parse the body, for FastAPI."""
        return json.loads(await self.body(), object_pairs_hook=each_name_once)


class DocumentRoute(APIRoute):
    """A route whose JSON body has each name once."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which reads the body of a request of ours."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_Request(request.scope, request.receive))

        return handle
