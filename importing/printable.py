"""Texts of files as a terminal may print them."""

from __future__ import annotations


def printable(text: str, *, kept: str = "") -> str:
    r"""Return a text without control characters, which terminals obey, except those that are `kept`.

    Example:
        >>> printable("amo\x1b[31munt")
        'amo�[31munt'
    """
    return "".join(sign if sign.isprintable() or sign in kept else "\N{REPLACEMENT CHARACTER}" for sign in text)
