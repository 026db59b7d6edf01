"""Request bodies from arrays, nested lists, images, files and documents."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

MEDIA_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".npy": "application/x-npy",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}


LABELLED_TYPES = {
    ".npz": "application/x-npz",
    ".parquet": "application/vnd.apache.parquet",
    ".csv": "text/csv",
    ".ndjson": "application/x-ndjson",
    ".jsonl": "application/x-ndjson",
}
"""Content types of labelled sets, by file ending."""


def labelled_body(rows: bytes | Path | str, media_type: str | None) -> tuple[dict[str, Any], Path | None]:
    """Return httpx's arguments to send labelled rows, and the file to stream them from, if any.

    Args:
        rows: Path of a file, or its bytes.
        media_type: Content type; None goes by the file's ending.

    Raises:
        ValueError: The content type is unknown.
    """
    path = None if isinstance(rows, bytes) else Path(rows)
    if media_type is None:
        media_type = LABELLED_TYPES.get(path.suffix.lower()) if path is not None else None
        if media_type is None:
            raise ValueError(
                f"{path or 'bytes'}: expected a file ending in one of {', '.join(LABELLED_TYPES)}, or a media_type"
            )
    headers = {"headers": {"content-type": media_type}}
    return (headers, path) if path is not None else ({**headers, "content": rows}, None)


def inputs_body(inputs: Any, names: Mapping[str, Sequence[Any] | None]) -> dict[str, Any]:
    """Return httpx's arguments to send inputs.

    An array is sent as `.npy`, or as JSON if names go with it. NaN becomes null, the missing value of a table row.

    Args:
        inputs: A NumPy array, nested lists, texts, or rows of a table: mappings, or a data frame of pandas or polars.
        names: `references`, `groups`, `segments` and `amounts`; None where not given.

    Raises:
        TypeError: The input is a single text or row, or contains a value that JSON cannot hold.
    """
    given = _given(names)
    if given or not hasattr(inputs, "__array_interface__") or inputs.dtype.hasobject:
        return _rows_body("inputs", inputs, given)
    import numpy as np  # installed wherever arrays come from

    stream = io.BytesIO()
    np.save(stream, np.asarray(inputs), allow_pickle=False)
    return {"content": stream.getvalue(), "headers": {"content-type": MEDIA_TYPES[".npy"]}}


def prediction_body(
    inputs: Any, scores: Mapping[str, Any], names: Mapping[str, Sequence[Any] | None]
) -> dict[str, Any]:
    """Return httpx's arguments to send inputs, or scores in their place.

    Args:
        inputs: As in `inputs_body`, or None.
        scores: Values by name of field; None where not given.
        names: As in `inputs_body`.

    Raises:
        TypeError: There is not exactly one of them, it is not a batch, or it contains a value that JSON cannot hold.
    """
    given = {name: values for name, values in scores.items() if values is not None}
    if len(given) + (inputs is not None) != 1:
        found = [*(["inputs"] if inputs is not None else []), *given]
        raise TypeError(f"found {' and '.join(found) or 'nothing'}, expected one of inputs, {', '.join(scores)}")
    if inputs is not None:
        return inputs_body(inputs, names)
    ((field, values),) = given.items()
    return _rows_body(field, values, _given(names))


def images_body(images: Sequence[bytes | Path | str], names: Mapping[str, Sequence[Any] | None]) -> dict[str, Any]:
    """Return httpx's arguments to send encoded images, or files of them, as one form.

    Raises:
        TypeError: The input is a single image, or names are a single text.
        ValueError: There are no images.
    """
    _refuse_single("images", images)
    if not images:
        raise ValueError("found no image, expected at least one")
    files = [
        ("inputs", (str(index), image if isinstance(image, bytes) else Path(image).read_bytes()))
        for index, image in enumerate(images)
    ]
    return {"files": files, "data": _given(names)}


def file_body(path: Path | str) -> dict[str, Any]:
    """Return httpx's arguments to send a file.

    Raises:
        ValueError: The service does not accept files with this ending.
    """
    path = Path(path)
    media_type = MEDIA_TYPES.get(path.suffix.lower())
    if media_type is None:
        raise ValueError(f"{path}: expected a file ending in one of {', '.join(MEDIA_TYPES)}")
    return {"content": path.read_bytes(), "headers": {"content-type": media_type}}


def json_body(document: Any) -> dict[str, Any]:
    """Return httpx's arguments to send JSON.

    Raises:
        TypeError: The document contains a value that JSON cannot hold.
    """
    try:
        text = json.dumps(document, allow_nan=False, default=_plain)
    except ValueError as error:
        raise TypeError("found NaN or infinity, expected numbers that JSON can hold") from error
    return {"content": text.encode(), "headers": {"content-type": MEDIA_TYPES[".json"]}}


def _rows_body(field: str, rows: Any, given: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return httpx's arguments to send rows with what goes with them; NaN becomes null."""
    _refuse_single(field, rows)
    document = {field: _listed(rows), **given}
    try:
        return json_body(document)
    except TypeError:  # NaN among the numbers; a search beforehand would cost more than this
        return json_body(_without_nan(document))


def _given(names: Mapping[str, Sequence[Any] | None]) -> dict[str, list[Any]]:
    """Return the names that are given, as lists; raises TypeError for a single text."""
    given = {}
    for name, values in names.items():
        if values is not None:
            _refuse_single(name, values)
            given[name] = list(values)
    return given


def _refuse_single(name: str, values: Any) -> None:
    if isinstance(values, str | bytes | Path | Mapping):  # the first two would go as their characters
        raise TypeError(f"found a single {type(values).__name__} as {name}, expected a batch: put it into a list")


def _listed(rows: Any) -> list[Any]:
    if hasattr(rows, "to_dicts"):  # polars
        return list(rows.to_dicts())
    if hasattr(rows, "columns") and hasattr(rows, "notna"):  # pandas: its missing values are not all None or NaN
        return list(rows.astype(object).where(rows.notna(), None).to_dict("records"))
    return rows.tolist() if hasattr(rows, "__array_interface__") else list(rows)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return value.tolist()
    raise TypeError(f"found {type(value).__name__}, expected numbers, texts, lists or mappings")


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return _without_nan(value.tolist()) if hasattr(value, "tolist") else value
