"""Write a sample table of orders, some of which the customer's bank charged back.

    .venv/bin/python examples/own_table.py var/table     see docs/tutorials/own-table.md

The folder gets `orders.csv`, 6,000 orders with their outcome; `incoming.csv`, 6,000 later orders without it; and
`labels.csv`, the outcomes of the later orders. Fraud is rarer among the later orders.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

COLUMNS = ("order", "amount", "items", "account_days", "hour", "country", "device")
COUNTRIES = ("AT", "DE", "FR", "IT")
KNOWN, LATER = 6000, 6000
RARER = -2.5  # log-odds by which fraud becomes rarer


def main(folder: Path) -> None:
    """Write the three files."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(7)
    orders, outcomes = drawn(draw, KNOWN, start=1, shift=0.0)
    write(
        folder / "orders.csv", (*COLUMNS, "outcome"), ([*row, end] for row, end in zip(orders, outcomes, strict=True))
    )
    orders, outcomes = drawn(draw, LATER, start=KNOWN + 1, shift=RARER)
    write(folder / "incoming.csv", COLUMNS, orders)
    labels = ([row[0], end, "bank"] for row, end in zip(orders, outcomes, strict=True))
    write(folder / "labels.csv", ("reference", "label", "source"), labels)


def drawn(draw: np.random.Generator, rows: int, *, start: int, shift: float) -> tuple[list[list[object]], list[str]]:
    """Draw orders and their outcomes.

    Args:
        draw: Source of random numbers.
        rows: Number of orders.
        start: Number of the first order.
        shift: Change of every order's log-odds of fraud.

    Returns:
        A row of `COLUMNS` for each order, and its outcome, `paid` or `fraud`.
    """
    amount = np.round(draw.lognormal(4.0, 0.7, rows), 2)
    items = 1 + draw.poisson(1.5, rows)
    days = np.floor(draw.gamma(1.2, 300.0, rows))
    hour = draw.integers(0, 24, rows)
    country = draw.choice(len(COUNTRIES), rows, p=(0.2, 0.4, 0.25, 0.15))
    new = draw.random(rows) < 0.3
    suspicion = 2.0 * np.log(amount / 60.0) + 5.0 * np.exp(-days / 90.0) + 3.0 * new + 2.0 * (hour < 6)
    suspicion += np.array([0.0, -0.5, 0.0, 1.0])[country] - 0.3 * items
    fraud = draw.random(rows) < 1.0 / (1.0 + np.exp(-3.0 * (suspicion - 3.4) - shift))
    device = np.where(new, "new", "known")
    columns = (amount, items, days.astype(int), hour, np.array(COUNTRIES)[country], device)
    cells = zip(*(column.tolist() for column in columns), strict=True)
    orders = [[f"order-{number}", *row] for number, row in enumerate(cells, start)]
    return orders, np.where(fraud, "fraud", "paid").tolist()


def write(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(header)
        lines.writerows(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
