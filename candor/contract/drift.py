"""Input drift: whether the columns of a table are distributed in the traffic as in the reference rows."""

from __future__ import annotations

from pydantic import Field

from candor.contract.documents import Answer


class DriftWindow(Answer):
    """A span of traffic, and the random sample of its rows."""

    since: str = Field(description="Start (ISO 8601, UTC).")
    until: str | None = Field(description="End; null while it is open.")
    rows: int = Field(description="Rows in the sample.")


class BinShare(Answer):
    """Shares of one bin of a column."""

    bin: str = Field(description="Values in the bin, such as `≤ 30`, a category, or `missing`.")
    reference: float = Field(description="Share of the reference rows.")
    traffic: float = Field(description="Share of the traffic.")


class ColumnDrift(Answer):
    """One column."""

    name: str
    alarm: bool = Field(description="Whether the last tested window raised the alarm.")
    psi: float | None = Field(description="Population stability index of the measured window; null before it.")
    psi_without_drift: float | None = Field(description="Its mean with as many rows and no drift.")
    evidence: float | None = Field(
        description="Evidence of the last tested window against equal distributions (natural logarithm of the e-value)."
    )
    bins: tuple[BinShare, ...] = Field(description="Shares in the measured window; empty before it.")


class InputDrift(Answer):
    """The test of input drift."""

    level: float = Field(description="Maximum probability of ever raising an alarm without drift.")
    place: int = Field(description="Number of such tests that the model has had, this one included.")
    windows: int = Field(description="Windows tested so far.")
    open: DriftWindow = Field(description="The window that is being collected.")
    measured: DriftWindow | None = Field(
        description="The window that indices and shares describe: the open one if it has 500 rows, else the last "
        "tested one."
    )
    tested: DriftWindow | None = Field(description="The last tested window.")
    watched: int = Field(description="Number of columns tested.")
    columns: tuple[ColumnDrift, ...] = Field(
        description="Columns with an alarm first, then by falling index; the first 50."
    )
