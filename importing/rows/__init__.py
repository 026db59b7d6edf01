"""Validation rows from a file or a folder.

    read_rows(path, label="is_fraud", group="card")   → Rows

CSV, Parquet, NDJSON, `.npz` and image folders; each format has its own file here.
"""

from importing.rows.image_folder import ImageFile
from importing.rows.read import read_rows
from importing.rows.result import Rows

__all__ = ["ImageFile", "Rows", "read_rows"]
