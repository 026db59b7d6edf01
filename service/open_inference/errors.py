"""Errors of /v2, which has a single text for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import CandorError, InputError
from service.places import Place

_LONGEST_PART = 500  # characters of client data in an error


def sentence(error: CandorError) -> str:
    """Return an error as one text.

    >>> from service.errors import InputShapeError
    >>> from service.places import in_body
    >>> sentence(InputShapeError("The request has no inputs.", where=in_body("inputs"), found=0, expected="1 or more"))
    'The request has no inputs. Where: /inputs. Found: 0. Expected: 1 or more.'
    """
    parts = [str(error)]
    for name in ("where", "found", "expected"):
        value = getattr(error, name)
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            parts.append(f"{name.capitalize()}: {text[:_LONGEST_PART]}.")
    if error.remedy is not None:
        parts.append(error.remedy)
    return " ".join(parts)


@contextmanager
def rows_of_the_tensor(tensor: Place) -> Iterator[None]:
    """Translate rows in errors of shared code: they are rows of `tensor`.

    >>> from service.places import in_body
    >>> try:
    ...     with rows_of_the_tensor(in_body("inputs", 0)):
    ...         raise InputError("No.", where=in_body("inputs", 3))
    ... except InputError as error:
    ...     error.where
    'row 3 of /inputs/0'
    """
    try:
        yield
    except InputError as error:
        name_row(error, tensor)
        raise


def name_row(error: InputError, tensor: Place) -> None:
    """Name the row in an error of shared code as a row of `tensor`."""
    if (row := error.row) is not None:
        error.place = tensor.tensor_row(row)
