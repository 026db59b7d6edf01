"""Choose a prediction's current label: by priority of the source, then the latest."""

from __future__ import annotations

from collections.abc import Sequence

PRIORITY = ("reviewer", "system", "client")  # strongest first; all other sources are weaker


def weight(source: str, priority: Sequence[str] = PRIORITY) -> int:
    """Return the strength of a source: larger wins; 0 for an unlisted source.

    Example:
        >>> [weight(source) for source in ("reviewer", "system", "client", "batch-7")]
        [3, 2, 1, 0]
    """
    return len(priority) - priority.index(source) if source in priority else 0


def rank(
    source: str, labelled_at: int | None, received_at: int, batch: int, position: int
) -> tuple[int, int, int, int]:
    """Return a sort key whose maximum is the current label.

    Args:
        source: Source of the label.
        labelled_at: When it was found; None if the client did not send it.
        received_at: When it was received; the default for `labelled_at`.
        batch: Number of its request.
        position: Its position in that request.

    Example:
        >>> rank("reviewer", 5, 9, 1, 0) > rank("client", 8, 9, 2, 0) > rank("client", None, 7, 3, 0)
        True
    """
    return weight(source), received_at if labelled_at is None else labelled_at, batch, position
