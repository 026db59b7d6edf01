"""Vehicle insurance claims, some fraudulent."""

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
    """Vehicle insurance claims: 15,420 claims in 31 columns, 923 of them fraudulent; without a test part.

    The policy number is left out; the representative's number is a category.

    Args:
        root: Folder of data sets, or of this one; None for CANDOR_DATA.

    Returns:
        Rows float32 (15420, 31), numbers and codes of categories; label names "genuine" and "fraud".

    Raises:
        DataError: The file is missing or not a valid table.
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
