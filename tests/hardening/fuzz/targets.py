"""Functions of bytes for a fuzzer: each returns where the service answers or refuses in its own words.

The first bytes of an input choose what reads the rest, so that one corpus covers every kind of model and media type.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt
from fastapi.exceptions import RequestValidationError

from bundle import Bundle, Column, Columns, InputSpec, Vocabulary
from service.errors import CandorError
from service.inference.encoded import decode_images
from service.inference.inputs import Encoder, conform
from service.rest import feedback_body, payloads
from service.rest.compression import ENCODINGS, decompress
from service.rest.v2 import body as v2
from service.row_files.check import CheckTask, check
from service.row_files.lines import CSV_TYPE, NDJSON_TYPE
from service.serving.verification import verified

DIGITS: Final = Path(__file__).parents[3] / "examples" / "bundles" / "digits" / "1"
_LIMIT: Final = 1 << 20  # bytes that an input may unpack to, and pixels that it may have
_MOST_ROWS: Final = 16
_NOW_US: Final = 1_800_000_000_000_000

_MODELS: Final[tuple[tuple[InputSpec, Encoder | None], ...]] = (
    (InputSpec(kind="image", dtype="uint8", shape=(8, 8, 1)), None),
    (InputSpec(kind="image", dtype="uint8", shape=(4, 6, 3), resize=True), None),
    (InputSpec(kind="array", dtype="float32", shape=(3,)), None),
    (
        InputSpec(kind="array", dtype="float32", shape=(3,)),
        Columns((Column("age"), Column("fault", ("driver", "third party")), Column("value"))),
    ),
    (InputSpec(kind="tokens", dtype="int32", shape=(3,)), None),
    (
        InputSpec(kind="tokens", dtype="int32", shape=(3,)),
        Vocabulary(("<pad>", "<unknown>", "cat", "dog"), 3),
    ),
)
_BODIES: Final = (payloads.JSON_TYPE, "multipart/form-data; boundary=b", payloads.TEXT_TYPE, None)
_SETS: Final = (CSV_TYPE, NDJSON_TYPE)


def image(data: bytes) -> None:
    """An image as the body of a prediction: PNG, JPEG or WebP, for a model that resizes and one that does not."""
    kind, body = _choice(data, 2)
    spec, _ = _MODELS[kind]
    with refused():
        _conform(payloads.parse(body, "image/png", spec, max_rows=1).inputs, spec, None)


def archive(data: bytes) -> None:
    """An `.npy` body of a prediction, or an `.npz` archive of labelled rows."""
    kind, body = _choice(data, 2 * len(_MODELS))
    if kind >= len(_MODELS):
        _labelled_set(body, "application/x-npz")
        return
    spec, encoder = _MODELS[kind]
    with refused():
        _conform(payloads.parse(body, payloads.NPY_TYPES[0], spec, encoder, max_rows=_MOST_ROWS).inputs, spec, encoder)


def json(data: bytes) -> None:
    """JSON, forms and texts of predictions, requests of the Open Inference Protocol, feedback, rows of CSV and NDJSON.

    For the protocol the next two bytes are Inference-Header-Content-Length, or all bits set for a request without it.
    """
    reader, data = _choice(data, 5)
    if reader == 0:
        _prediction(data)
    elif reader == 1:
        _inference(data)
    elif reader == 2:
        kind, body = _choice(data, len(feedback_body.MEDIA_TYPES))
        with refused():
            feedback_body.read_feedback(body, feedback_body.MEDIA_TYPES[kind])
    elif reader == 3:
        kind, body = _choice(data, len(_SETS))
        _labelled_set(body, _SETS[kind])
    else:
        kind, body = _choice(data, len(ENCODINGS))
        with refused():
            decompress(body, ENCODINGS[kind], _LIMIT)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {"image": image, "archive": archive, "json": json}


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Let a refusal in the service's own words pass: what `rest/problems.py` answers with a status of 4xx."""
    try:
        yield
    except (CandorError, RequestValidationError) as error:
        str(error)


def _prediction(data: bytes) -> None:
    model, data = _choice(data, len(_MODELS))
    media, body = _choice(data, len(_BODIES))
    spec, encoder = _MODELS[model]
    with refused():
        _conform(payloads.parse(body, _BODIES[media], spec, encoder, max_rows=_MOST_ROWS).inputs, spec, encoder)


def _inference(data: bytes) -> None:
    model, data = _choice(data, len(_MODELS))
    given, body = int.from_bytes(data[:2], "little"), data[2:]
    spec, encoder = _MODELS[model]
    with refused():
        length = v2.json_length(None if given == 0xFFFF else str(given), len(body))
        _conform(v2.parse(body, length, spec, encoder, max_rows=_MOST_ROWS).inputs, spec, encoder)


def _conform(inputs: npt.NDArray[Any] | list[bytes], spec: InputSpec, encoder: Encoder | None) -> None:
    """Bring inputs to what the model takes, decoded first where they are images."""
    if isinstance(inputs, list):
        inputs = decode_images(inputs, spec, max_pixels=_LIMIT)
    conform(inputs, spec, encoder)


def _labelled_set(body: bytes, media_type: str) -> None:
    folder = _folder()
    (folder / "body").write_bytes(body)
    task = CheckTask(
        body=str(folder / "body"),
        media_type=media_type,
        bundle=str(DIGITS),
        folder=str(folder),
        secret="00" * 32,
        now_us=_NOW_US,
        limit=_LIMIT,
        max_pixels=_LIMIT,
    )
    with refused():
        check(task, _bundle())


def _choice(data: bytes, ways: int) -> tuple[int, bytes]:
    return (data[0] % ways if data else 0), data[1:]


@cache
def _bundle() -> Bundle:
    return verified(DIGITS)


@cache
def _folder() -> Path:
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="candor-fuzz-", dir=shared if shared.is_dir() else None))
