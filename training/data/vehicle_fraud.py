"""Vehicle insurance claims, some of them fraudulent."""

from __future__ import annotations

from pathlib import Path

from training.data.dataset import Dataset
from training.data.distribution import Distribution
from training.data.table import read_table

FILE = "fraud_oracle.csv"

VEHICLE_FRAUD = Distribution(
    title="Vehicle claim fraud",
    folders=("vehicle-fraud",),
    obtain="Download fraud_oracle.csv (the data set `vehicle-claim-fraud-detection` on https://www.kaggle.com) and put "
    "it into vehicle-fraud/ in the folder of data sets.",
    layout="vehicle-fraud/fraud_oracle.csv, 33 columns, FraudFound_P (0 or 1) and PolicyNumber among them.",
)


def load(root: Path | None = None) -> Dataset:
    """Vehicle insurance claims: 15,420 claims in 31 columns, 923 of them fraudulent; it has no test part.

    The policy's number is left out, and the representative's is taken for a name.

    Args:
        root: Folder of data sets, or of this one; None for the one that CANDOR_DATA names.

    Returns:
        Rows float32 (15420, 31), numbers and codes of categories; label names "genuine" and "fraud".

    Raises:
        DataError: The file is missing or no such table.
        ConfigurationError: A column is missing.
    """
    return read_table(
        "vehicle_fraud",
        VEHICLE_FRAUD.find(root, FILE),
        FILE,
        label="FraudFound_P",
        drop=("PolicyNumber",),
        categorical=("RepNumber",),
        label_names=("genuine", "fraud"),
    )
