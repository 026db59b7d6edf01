"""The base of the manifest's parts: frozen, closed, and free of infinities."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Label = Annotated[str, Field(min_length=1, max_length=256)]


class Frozen(BaseModel):
    """A part of the manifest; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def first_problem(error: Exception) -> str:
    """Return what is wrong first in a document, and where in it, on one line; the message of any other error."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    said = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    return f"{where}: {said}" if where else said
