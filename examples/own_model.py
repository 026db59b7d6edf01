"""Write a sample table of card payments, some of which turned out to be fraud.

    .venv/bin/python examples/own_model.py var/payments     see docs/tutorials/own-model.md

The folder gets `payments.csv`, 20,000 payments of which it is known whether they were fraud; `later.csv`, 9,000 later
payments; and `outcomes.csv`, what they turned out to be. A wave of fraud has begun by the later payments.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

COLUMNS = (
    "payment",
    "booked_at",
    "card",
    "amount",
    "country",
    "merchant",
    "hour",
    "card_days",
    "payments_24h",
    "home_km",
)
COUNTRIES = ("AT", "BR", "DE", "FR", "GB", "NG", "PL", "US")
MERCHANTS = ("electronics", "fuel", "grocery", "restaurant", "travel", "vouchers")
KNOWN, LATER = 20_000, 9_000
CARDS = 30_000
START = datetime(2026, 1, 5, tzinfo=UTC)
MORE = 2.2  # log-odds by which fraud becomes more frequent


def main(folder: Path) -> None:
    """Write the three files."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(11)
    payments, fraud = drawn(draw, KNOWN, start=1, shift=0.0)
    known = ([*row, int(end)] for row, end in zip(payments, fraud, strict=True))
    write(folder / "payments.csv", (*COLUMNS, "is_fraud"), known)
    payments, fraud = drawn(draw, LATER, start=KNOWN + 1, shift=MORE)
    write(folder / "later.csv", COLUMNS, payments)
    outcomes = ([row[0], "fraud" if end else "genuine", "bank"] for row, end in zip(payments, fraud, strict=True))
    write(folder / "outcomes.csv", ("reference", "label", "source"), outcomes)


def drawn(
    draw: np.random.Generator, rows: int, *, start: int, shift: float
) -> tuple[list[list[object]], Sequence[bool]]:
    """Draw payments and whether they are fraud.

    Args:
        draw: Source of random numbers.
        rows: Number of payments.
        start: Number of the first payment.
        shift: Change of every payment's log-odds of fraud.

    Returns:
        A row of `COLUMNS` for each payment, in the order of time, and whether it is fraud.
    """
    card = draw.integers(0, CARDS, rows)
    amount = np.round(draw.lognormal(3.6, 1.0, rows), 2)
    country = draw.choice(len(COUNTRIES), rows, p=(0.12, 0.04, 0.40, 0.14, 0.12, 0.02, 0.10, 0.06))
    merchant = draw.choice(len(MERCHANTS), rows, p=(0.12, 0.16, 0.38, 0.20, 0.06, 0.08))
    hour = np.round(draw.normal(14.0, 4.5, rows)).astype(int) % 24
    days = np.floor(draw.gamma(1.3, 500.0, rows))
    often = draw.poisson(0.8, rows) + (draw.random(rows) < 0.05) * draw.poisson(6.0, rows)
    far = np.round(draw.lognormal(2.2, 1.6, rows), 1)
    online = draw.random(rows) < 0.35  # the distance from home is not known
    suspicion = 1.5 * np.log(amount / 40.0) + 0.9 * often + 0.5 * np.log1p(far) * ~online + 1.5 * online
    suspicion += np.array([0.0, 1.8, -0.5, 0.0, 0.3, 2.5, 0.0, 1.0])[country]
    suspicion += np.array([2.0, -0.5, -2.0, -1.0, 1.0, 3.0])[merchant] + 3.0 * np.exp(-days / 120.0) + 1.5 * (hour < 6)
    fraud = draw.random(rows) < 1.0 / (1.0 + np.exp(-2.2 * (suspicion - 7.1) - shift))
    first = START + timedelta(minutes=4 * (start - 1))
    numbers = range(start, start + rows)
    columns = (
        [f"tx-{number}" for number in numbers],
        [(first + timedelta(minutes=4 * place)).strftime("%Y-%m-%dT%H:%MZ") for place in range(rows)],
        [f"card-{number}" for number in card],
        amount.tolist(),
        np.array(COUNTRIES)[country].tolist(),
        np.array(MERCHANTS)[merchant].tolist(),
        hour.tolist(),
        ["" if unknown else int(day) for day, unknown in zip(days, draw.random(rows) < 0.06, strict=True)],
        often.tolist(),
        ["" if unknown else km for km, unknown in zip(far.tolist(), online, strict=True)],
    )
    return [list(row) for row in zip(*columns, strict=True)], fraud.tolist()


def write(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(header)
        lines.writerows(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
