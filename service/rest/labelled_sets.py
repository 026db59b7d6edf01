"""…/labelled-sets: upload labelled rows as a file, see what was uploaded, delete it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from candor.contract.labelled_sets import LabelledSet, LabelledSetPage
from service.operations import labelled_sets as operations
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.exchange import query_values
from service.rest.intake import Intake
from service.rest.responses import sent
from service.row_files.check import MEDIA_TYPES, NPZ_TYPES
from service.row_files.lines import CSV_TYPE, NDJSON_TYPE
from service.row_files.parquet_rows import PARQUET_TYPE
from service.state.labelled_sets import Represents

RepresentsQuery = Annotated[
    Represents | None,
    Query(
        description="`traffic` declares that the rows are a random sample of the model's traffic, as `propensity` says "
        "where they have one. Only then can they certify; it goes into the audit log and the certificates."
    ),
]


def _intake(request: Request) -> Intake:
    intake: Intake = request.app.state.intake
    return intake


IntakeDep = Annotated[Intake, Depends(_intake)]


async def upload_labelled_set(
    request: Request,
    intake: IntakeDep,
    model: ModelDep,
    by: Caller,
    represents: RepresentsQuery = None,
) -> Response:
    """Upload labelled rows to recalibrate on. All rows are checked and stored before the answer, or none is.

    A row has a `label` by name, and either scores or inputs: `logits`, or a column of logits for each label; or
    `inputs`, or the columns of a table, which the model scores at the recalibration. `group`, `segment`, `propensity`,
    `predicted_at` and `labelled_at` are optional. The same bytes again are the same set, and answer 200.
    """
    query_values(request.scope["query_string"], ("represents",))
    found, new = await intake.take(request.scope, request.receive, model, represents=represents, by=by)
    location = f"/v1/models/{model.name}/labelled-sets/{found.id}"
    return sent(operations.described(found), 201 if new else 200, location=location)


def list_labelled_sets(runtime: RuntimeDep, model: ModelDep) -> Response:
    """List the labelled sets of a model, newest first."""
    return sent(operations.list_labelled_sets(runtime, model))


def get_labelled_set(runtime: RuntimeDep, model: ModelDep, labelled_set: str) -> Response:
    """Return the description of a labelled set, not its rows."""
    return sent(operations.get_labelled_set(runtime, model, labelled_set))


def delete_labelled_set(runtime: RuntimeDep, model: ModelDep, by: Caller, labelled_set: str) -> Response:
    """Delete a labelled set, unless a job is about to read it. Looks at its rows stay counted."""
    return sent(operations.delete_labelled_set(runtime, model, labelled_set, by=by))


_BYTES: Final = {"type": "string", "format": "binary"}
CONTENT: Final[dict[str, Any]] = {
    **{
        media_type: {"schema": {**_BYTES, "description": "A NumPy archive with an array for each column."}}
        for media_type in NPZ_TYPES
    },
    PARQUET_TYPE: {"schema": {**_BYTES, "description": "Where the service has the extra `parquet`."}},
    CSV_TYPE: {
        "schema": {"type": "string", "description": "A header, and one row a line."},
        "example": "label,cat,dog,group\ncat,2.5,-1.0,u-1\ndog,-0.5,1.5,u-2\n",
    },
    NDJSON_TYPE: {
        "schema": {"type": "string", "description": "One row a line, as a JSON object."},
        "example": '{"label": "cat", "logits": [2.5, -1.0]}\n{"label": "dog", "logits": [-0.5, 1.5]}\n',
    },
}
"""Bodies of labelled rows in the OpenAPI document."""


def is_upload(method: str, path: str, media_type: str) -> bool:
    """Tell whether a request's body goes to disk, with a limit of its own.

    >>> is_upload("POST", "/v1/models/digits/labelled-sets", "text/csv"), is_upload("POST", "/feedback", "text/csv")
    (True, False)
    """
    end = path.rpartition("/")[2]
    return method == "POST" and (end == "labelled-sets" or (end == "recalibrate" and media_type in MEDIA_TYPES))


def add_to(router: APIRouter) -> None:
    """Mount the endpoints."""
    tags: list[Any] = ["recalibration"]
    known: dict[int | str, dict[str, Any]] = {200: {"model": LabelledSet, "description": "The set is stored already."}}
    router.add_api_route(
        "/labelled-sets",
        upload_labelled_set,
        methods=["POST"],
        status_code=201,
        tags=tags,
        response_model=LabelledSet,
        responses=known,
        openapi_extra={"requestBody": {"required": True, "content": CONTENT}},
    )
    router.add_api_route(
        "/labelled-sets", list_labelled_sets, methods=["GET"], tags=tags, response_model=LabelledSetPage
    )
    one = "/labelled-sets/{labelled_set}"
    router.add_api_route(one, get_labelled_set, methods=["GET"], tags=tags, response_model=LabelledSet)
    router.add_api_route(one, delete_labelled_set, methods=["DELETE"], tags=tags, response_model=LabelledSet)
