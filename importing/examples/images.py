"""Images for a graph: which axes are what, and how pixels become its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from bundle import GraphInput, InputSpec
from bundle.errors import ImageError
from bundle.images import decode_image
from bundle.schema import first_problem
from importing.errors import AmbiguousModelError, RowsError, UnsupportedModelError
from importing.examples.result import Examples, OnDemand
from importing.model import Port
from importing.rows import Rows

_CHANNELS = (1, 3)
_MAX_PIXELS = 100_000_000


def _layout(text: str) -> str:
    if text not in ("NCHW", "NHWC"):
        raise ValueError(text)
    return text


def _size(text: str) -> tuple[int, int]:
    height, width = map(int, text.split("x"))
    return height, width


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(_number, text.split()))


def _deviations(text: str) -> tuple[float, ...]:
    numbers = _numbers(text)
    if min(numbers) <= 0:
        raise ValueError(text)
    return numbers


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "layout": ("layout", _layout),
    "scale": ("scale", _number),
    "mean": ("mean", _numbers),
    "std": ("deviation", _deviations),
    "size": ("size", _size),
}


@dataclass(frozen=True)
class Wanted:
    """What the user says of an input: `NAME[:layout=NCHW,scale=…,mean=…,std=…,size=HxW]`.

    Attributes:
        name: Its name; "" for the only one.
        layout: `NCHW` or `NHWC`.
        scale: Factor of pixels; None for 1/255 where the graph takes floats.
        mean: Subtracted from each channel.
        deviation: Divisor of each channel.
        size: Height and width where the graph does not fix them.
        text: The option as it was given.
    """

    name: str = ""
    layout: str | None = None
    scale: float | None = None
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    size: tuple[int, int] | None = None
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> Wanted:
        """Read the option; raises UnsupportedModelError."""
        name, _, rest = text.partition(":")
        fields: dict[str, Any] = {"name": name, "text": text}
        try:
            for part in rest.split(",") if rest else ():
                key, _, value = part.partition("=")
                field, read = _OPTIONS[key]
                fields[field] = read(value)
        except (KeyError, ValueError):
            raise UnsupportedModelError(
                f"cannot read the option --input {text}",
                expected="NAME:layout=NCHW,scale=0.0039,mean=0.485 0.456 0.406,std=0.229 0.224 0.225,size=224x224, "
                "with finite numbers and each std above 0",
            ) from None
        return cls(**fields)


def image_examples(rows: Rows, ports: Sequence[Port], option: Wanted) -> Examples:
    """Describe images as the only input of the graph; they are decoded when they are scored.

    Args:
        rows: Rows of an image folder, or of `.npz` with one array of pixels.
        ports: Inputs of the graph.
        option: What the user says of the input.

    Raises:
        AmbiguousModelError: The order of the axes or the size is not clear.
        UnsupportedModelError: The graph does not take images, or not as the user says.
    """
    port = ports[0]
    if len(ports) != 1 or len(port.row) != 3 or port.dtype not in ("uint8", "float16", "float32", "float64"):
        raise UnsupportedModelError(
            "the model does not take images",
            found="; ".join(map(str, ports)),
            expected="one input of pixels with 4 axes: NCHW or NHWC",
        )
    layouts = [name for name, axis in (("NCHW", 0), ("NHWC", 2)) if port.row[axis] in _CHANNELS]
    if option.layout is None and len(layouts) != 1:
        raise AmbiguousModelError(
            "the order of the image's axes is not clear", found=str(port), expected=f"--input {port.name}:layout=NCHW"
        )
    layout = option.layout or layouts[0]
    channels, *sides = port.row if layout == "NCHW" else (port.row[2], *port.row[:2])
    if channels not in _CHANNELS:
        raise UnsupportedModelError(
            f"{layout} images have another number of channels", found=str(port), expected="1 or 3, fixed"
        )
    given = option.size or (None, None)
    height, width = (side or size for side, size in zip(sides, given, strict=True))
    if height is None or width is None:
        raise AmbiguousModelError(
            "the graph takes images of any size", found=str(port), expected=f"--input {port.name}:size=224x224"
        )
    shape = (height, width, channels)
    scale = option.scale if option.scale is not None else (1.0 if port.dtype == "uint8" else 1 / 255)
    try:
        spec = InputSpec(kind="image", dtype="uint8", shape=shape, resize=True)
        feed = GraphInput(
            name=port.name,
            dtype=port.dtype,
            shape=(channels, height, width) if layout == "NCHW" else shape,
            layout=layout,
            scale=scale,
            mean=option.mean,
            deviation=option.deviation,
        )
    except ValidationError as error:
        raise UnsupportedModelError(
            f"cannot feed images to the model: {first_problem(error)}",
            where=str(port),
            found=f"--input {option.text}" if option.text else None,
        ) from error
    note = f"input {port.name}: images of {height} × {width} × {channels} as {layout} {port.dtype}, scale {scale:.4g}"
    for name, numbers in (("mean", option.mean), ("deviation", option.deviation)):
        if numbers:
            note += f", {name} {' '.join(f'{number:g}' for number in numbers)}"
    values = OnDemand(len(rows), partial(_decoded, rows, spec)) if rows.files else _pixels(rows, spec)
    return Examples(spec, (feed,), None, values, (note,))


def _pixels(rows: Rows, spec: InputSpec) -> npt.NDArray[np.uint8]:
    """Return the only array of the rows if it holds images (N, H, W, C) of this shape; raises RowsError."""
    found = ", ".join(f"{name}: {array.dtype} {array.shape}" for name, array in rows.features.items())
    pixels, *others = rows.features.values()
    if others or pixels.dtype != np.uint8 or pixels.shape[1:] != spec.shape:
        raise RowsError(
            "The arrays are not the images that --input describes.",
            where=str(rows.path),
            found=found,
            expected=f"one array: uint8 {(len(rows), *spec.shape)}",
        )
    return pixels


def _decoded(rows: Rows, spec: InputSpec, places: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return some images, (n, H, W, C); raises RowsError."""
    images = np.empty((len(places), *spec.shape), np.uint8)
    for image, row in zip(images, places.tolist(), strict=True):
        try:
            image[:] = decode_image(rows.features["image"][row].read(), spec, max_pixels=_MAX_PIXELS)
        except ImageError as error:
            raise RowsError(error.message, where=rows.where(row), found=error.found, expected=error.expected) from error
    return images
