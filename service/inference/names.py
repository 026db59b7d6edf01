"""Names that clients give: references, groups and segments of rows."""

from __future__ import annotations

from typing import Final

from service.errors import InputValueError
from service.places import Place

LONGEST_NAME: Final = 200
"""Maximum characters of a name."""


def check_name(name: str, who: str, where: Place) -> str:
    """Check a name given by a client and return it.

    Args:
        name: The name.
        who: Subject and verb of the message.
        where: Place of the name.

    Raises:
        InputValueError: The name is empty, longer than `LONGEST_NAME`, or contains NUL.
    """
    if not 0 < len(name) <= LONGEST_NAME or "\0" in name:
        raise InputValueError(
            f"{who} 1 to {LONGEST_NAME} characters, none of them NUL.",
            where=where,
            found=f"{len(name)} characters" + ", with a NUL" * ("\0" in name),
            expected=f"1 to {LONGEST_NAME} characters without NUL",
        )
    return name
