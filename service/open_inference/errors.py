"""Places in errors of /v2, whose rows are those of a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import InputError
from service.places import Place


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
