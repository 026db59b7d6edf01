"""Errors in the protocol's words: one text, since that is all it has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import CandorError, InputError

_LONGEST_PART = 500  # characters of what a client sent that an error repeats


def sentence(error: CandorError) -> str:
    """Return all that an error says, as one text.

    >>> from service.errors import InputShapeError
    >>> sentence(InputShapeError("There are no inputs.", where="/inputs", found=0, expected="at least 1 example"))
    'There are no inputs. Where: /inputs. Found: 0. Expected: at least 1 example.'
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
def rows_of_the_tensor(where: str) -> Iterator[None]:
    """Name rows as the protocol would in errors from parts that both protocols share: all are in the tensor at `where`.

    >>> with rows_of_the_tensor("/inputs/0"):
    ...     raise InputError("No.", where="/inputs/3")
    Traceback (most recent call last):
    service.errors.InputError: No.
    """
    try:
        yield
    except InputError as error:
        if error.where is not None and error.where.startswith("/inputs/"):
            error.where = f"row {error.where.removeprefix('/inputs/')} of {where}"
        raise
