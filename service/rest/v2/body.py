"""Bodies of inference requests: JSON, tensors after it, or a tensor alone."""

from __future__ import annotations

import re
from typing import Final

from bundle import InputSpec
from service.errors import MalformedBodyError
from service.inference.inputs import NOTHING, Beyond, Encoder
from service.open_inference import request
from service.open_inference.named import INPUT
from service.open_inference.request import Inference
from service.places import in_header
from service.rest.payloads import load_rows

_LENGTH: Final = re.compile(r"[0-9]{1,18}")


def json_length(header: str | None, size: int) -> int:
    """Return the length of the JSON part at the start of a body.

    Args:
        header: Inference-Header-Content-Length; None means that the whole body is JSON.
        size: Bytes of the unpacked body.

    Raises:
        MalformedBodyError: The header does not fit the body, or the body is empty.
    """
    if header is None and size:
        return size
    if header is None:
        raise MalformedBodyError("The body is empty.", expected="a JSON object, or a tensor")
    if not _LENGTH.fullmatch(header) or int(header) > size:
        raise MalformedBodyError(
            "Inference-Header-Content-Length does not fit the body.",
            where=in_header("Inference-Header-Content-Length"),
            found=header[:40],
            expected=f"0 to {size}",
            remedy="It must count the bytes of JSON before the tensors, after decompression.",
        )
    return int(header)


def parse(
    body: bytes,
    length: int,
    spec: InputSpec,
    encoder: Encoder | None = None,
    *,
    max_rows: int,
    own: str = INPUT,
    beyond: Beyond = NOTHING,
) -> Inference:
    """Read an inference request.

    Args:
        body: Unpacked body.
        length: Bytes of JSON at its start, see `json_length`. 0 means the input tensor alone, in the datatype of the
            model.
        spec: Input of the model.
        encoder: Encoder of texts in the bundle of the model.
        max_rows: Maximum number of texts or encoded images.
        own: Name of the only input in the graph of the model.
        beyond: Columns of its challengers.

    Raises:
        MalformedBodyError: The body is not an inference request.
        InputError: The request cannot be answered.
    """
    if length == 0:
        return request.alone(body, spec, encoder, max_rows=max_rows)
    document = load_rows(body[:length], spec, max_rows, beyond)
    return request.read(document, body, length, spec, encoder, max_rows=max_rows, own=own, beyond=beyond)
