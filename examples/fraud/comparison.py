"""Stated probabilities and decisions beside the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from examples.fraud.refits import Share, against_truth
from examples.fraud.traffic import Served


@dataclass(frozen=True, eq=False)
class Side:
    """One of several calibrators of the same network.

    Attributes:
        name: Name for the table.
        stated: Probabilities of fraud, (N,).
        share: Fraud rate among its labels; None without labels.
    """

    name: str
    stated: NDArray[np.floating]
    share: Share | None = None


def compare(sides: Mapping[str, Served], console: Console) -> None:
    """Print the decisions beside the truth."""
    columns = ("", "blocked", "true precision", "reviewed", "allowed", "flagged", "stated", "true")
    table = Table(*columns, box=None, pad_edge=False)
    for name, served in sides.items():
        found = against_truth(served.stated, served)
        shares = (
            served.share("block"),
            served.true_precision(),
            served.share("review"),
            served.share("allow"),
            served.flagged(),
            found.stated,
            found.true,
        )
        table.add_row(name, *("—" if np.isnan(share) else f"{share:.1%}" for share in shares))
    console.print(table)


def outcome_of(served: Served) -> dict[str, float | None]:
    """Return rates of the decisions beside the truth; None for a rate without rows."""
    found = {
        "precision": served.true_precision(),
        "blocked": served.share("block"),
        "reviewed": served.share("review"),
        "flagged": served.flagged(),
        **against_truth(served.stated, served).to_dict(),
    }
    return {name: None if np.isnan(value) else value for name, value in found.items()}


def hold_against_truth(sides: Mapping[str, Side], served: Served, console: Console) -> dict[str, Any]:
    """Print how far each side is from the truth, and return it by key."""
    columns = ("", "fraud rate", "mean stated", "of allowed payments", "excess log loss")
    table = Table(*columns, box=None, pad_edge=False)
    truth = against_truth(served.payments.probability, served)
    table.add_row("the truth", f"{truth.true:.2%}", f"{truth.true:.2%}", f"{truth.let_through_true:.2%}", "0")
    noted: dict[str, Any] = {}
    for key, side in sides.items():
        found, share = against_truth(side.stated, served), side.share
        table.add_row(
            side.name,
            "" if share is None else f"{share.value:.2%} ± {2 * share.error:.2%}",
            f"{found.stated:.2%}",
            f"{found.let_through:.2%}",
            f"{found.excess:.4f}",
        )
        noted[key] = found.to_dict()
        if share is not None:
            noted[key]["share"] = {"value": share.value, "error": share.error}
    console.print(table)
    return noted
