"""Documents that options name: JSON of one kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from importing.errors import RowsError


def read_json(path: Path, what: str, kind: type) -> Any:
    """Return the document of a file given as an option.

    Raises:
        RowsError: The file is not JSON, or not of this kind.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise RowsError(f"The file of {what} cannot be read: {error}", where=str(path)) from error
    if not isinstance(document, kind):
        raise RowsError(f"The file of {what} has the wrong form.", where=str(path), expected=f"a JSON {kind.__name__}")
    return document
