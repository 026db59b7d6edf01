"""Which of several labels for one prediction is the current one: by priority of the source, then the latest."""

from __future__ import annotations

from collections.abc import Sequence

PRIORITY = ("reviewer", "system", "client")  # first is strongest; every other source is weaker than all of these


def weight(source: str, priority: Sequence[str] = PRIORITY) -> int:
    """Return how strong a source is: larger wins, 0 for a source that is not listed.

    Example:
        >>> [weight(source) for source in ("reviewer", "system", "client", "batch-7")]
        [3, 2, 1, 0]
    """
    return len(priority) - priority.index(source) if source in priority else 0


def rank(
    source: str, labelled_at: int | None, received_at: int, batch: int, position: int
) -> tuple[int, int, int, int]:
    """Return a key by which the current label is the largest.

    Args:
        source: Who gave the label.
        labelled_at: When it was found out, None where the client did not say.
        received_at: When it came; stands in for `labelled_at`.
        batch: Number of the request that it came in.
        position: Its place in that request.

    Example:
        >>> rank("reviewer", 5, 9, 1, 0) > rank("client", 8, 9, 2, 0) > rank("client", None, 7, 3, 0)
        True
    """
    return weight(source), received_at if labelled_at is None else labelled_at, batch, position
