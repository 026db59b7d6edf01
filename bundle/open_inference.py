"""Requests and answers of the Open Inference Protocol (V2), as a client writes and reads them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

BYTES: Final = "BYTES"
OF_DTYPE: Final = {
    **{dtype: dtype.upper() for dtype in ("uint8", "uint16", "int8", "int16", "int32", "int64", "bool")},
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "string": BYTES,
}
"""Datatype of the protocol that needs no conversion, by dtype of a model's input."""

LENGTH_HEADER: Final = "Inference-Header-Content-Length"
_DTYPES: Final = {name: np.dtype(dtype).newbyteorder("<") for dtype, name in OF_DTYPE.items() if name != BYTES}
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_MAX_AXES: Final = 32


def dump_request(inputs: Mapping[str, NDArray[Any]], output: str, *, binary: bool) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a request for one output.

    Args:
        inputs: Arrays by name of the input; texts as arrays of objects.
        output: Name of the output.
        binary: Whether tensors follow the JSON as bytes, and shall do so in the answer.

    Raises:
        ValueError: JSON cannot hold a value: a number that is not finite, or float16.
    """
    tensors: list[dict[str, Any]] = []
    behind: list[bytes] = []
    for name, values in inputs.items():
        datatype = BYTES if values.dtype == object else OF_DTYPE[values.dtype.name]
        tensor: dict[str, Any] = {"name": name, "shape": values.shape, "datatype": datatype}
        if binary:
            data = bytes_tensor(values.ravel()) if datatype == BYTES else values.astype(_DTYPES[datatype]).tobytes()
            tensor["parameters"] = {"binary_data_size": len(data)}
            behind.append(data)
        elif datatype == "FP16":
            raise ValueError(f"input {name!r}: JSON does not hold FP16")
        else:
            tensor["data"] = values.ravel().tolist()
        tensors.append(tensor)
    wanted: dict[str, Any] = {"name": output}
    if binary:
        wanted["parameters"] = {"binary_data": True}
    head = json.dumps({"inputs": tensors, "outputs": [wanted]}, allow_nan=False, separators=(",", ":")).encode()
    if not binary:
        return head, {"content-type": "application/json"}
    return b"".join((head, *behind)), {"content-type": "application/octet-stream", LENGTH_HEADER: str(len(head))}


def load_answer(body: bytes, length: str | None, output: str) -> tuple[NDArray[Any], str | None]:
    """Return an output of an answer, numbers in their shape, and the version of the model that gave it.

    Args:
        body: The answer.
        length: Its header Inference-Header-Content-Length; None where all of the body is JSON.
        output: Name of the output.

    Raises:
        ValueError: The answer does not follow the protocol, or lacks the output.
    """
    if length is not None and (not _LENGTH.fullmatch(length) or int(length) > len(body)):
        raise ValueError(f"{LENGTH_HEADER} {length[:40]!r} does not fit a body of {len(body)} bytes")
    start = len(body) if length is None else int(length)
    document = load_object(body[:start])
    version = document.get("model_version")
    if version is not None and not isinstance(version, str):
        raise ValueError(f"`model_version` is {type(version).__name__}, expected a text")
    outputs = document.get("outputs")
    if not isinstance(outputs, list) or not all(isinstance(tensor, dict) for tensor in outputs):
        raise ValueError("`outputs` is not an array of tensors")
    found: NDArray[Any] | None = None
    for tensor in outputs:
        parameters = tensor.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if size is not None and (type(size) is not int or not 0 <= size <= len(body) - start):
            raise ValueError(f"`binary_data_size` {str(size)[:40]} does not fit {len(body) - start} bytes")
        if tensor.get("name") == output:
            found = _values(tensor, None if size is None else body[start : start + size])
        start += size or 0
    if found is None:
        raise ValueError(f"the answer has no output {output!r}")
    return found, version


def load_object(data: bytes) -> dict[str, Any]:
    """Return a JSON object; raises ValueError."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"JSON of type {type(document).__name__}, expected an object")  # noqa: TRY004
    return document


def bytes_tensor(texts: Sequence[str] | NDArray[Any]) -> bytes:
    r"""Return texts as a BYTES tensor: for each, its length in four bytes and its UTF-8.

    >>> bytes_tensor(["a", ""])
    b'\x01\x00\x00\x00a\x00\x00\x00\x00'
    """
    parts: list[bytes] = []
    for text in texts:
        encoded = text.encode()
        parts += (len(encoded).to_bytes(4, "little"), encoded)
    return b"".join(parts)


def _values(tensor: dict[str, Any], data: bytes | None) -> NDArray[Any]:
    name, shape = tensor["name"], tensor.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) > _MAX_AXES
        or not all(type(side) is int and side >= 0 for side in shape)
    ):
        raise ValueError(f"output {name!r} has no valid shape")
    datatype = tensor.get("datatype")
    dtype = _DTYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None or dtype.kind not in "iuf":
        raise ValueError(f"output {name!r} has datatype {str(datatype)[:40]!r}, expected numbers")
    count = math.prod(shape)  # Python integers: a hostile shape must not overflow
    if data is not None:
        if len(data) != count * dtype.itemsize:
            raise ValueError(f"output {name!r} has {len(data)} bytes for {datatype} of shape {shape}")
        return np.frombuffer(data, dtype).reshape(shape)
    try:
        values = np.asarray(tensor.get("data"))
    except ValueError:
        values = np.array(None)
    if values.size != count or (count and values.dtype.kind not in "iuf"):
        raise ValueError(f"output {name!r} has no numbers in `data`, or not as many as its shape {shape}")
    with np.errstate(over="ignore"):
        return values.astype(dtype).reshape(shape)
