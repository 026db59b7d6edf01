"""Golden inputs: a few examples with the logits that the model must give on every machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bundle import npz
from bundle.errors import BundleFormatError
from bundle.inputs import InputSpec
from bundle.manifest import GOLDEN_FILE
from calibrators.softmax import softmax

MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp")
_TEXT_TYPE = "text/plain"
_NAMES = frozenset({"logits", "encoded_bytes", "encoded_ends", "encoded_rows", "encoded_types"})
_MAX_BYTES = 2**26
# Exporters promise agreement to 1e-4; a different CPU or a GPU may add rounding of that size.
_TOLERANCE = 2e-4
# Log-probabilities near 0 round by more than probabilities, and with the size of the batch.
_LOOSE = 10 * _TOLERANCE
_SAME = 1e-4  # of probabilities


class Difference(NamedTuple):
    """What differs, what was found, and what was expected."""

    message: str
    found: Any
    expected: Any


@dataclass(frozen=True)
class EncodedImage:
    """An encoded image that decodes to one of the golden inputs.

    Attributes:
        media_type: `image/png`, `image/jpeg` or `image/webp`.
        data: The encoded bytes.
        row: Row of the golden input that it must decode to exactly.
    """

    media_type: str
    data: bytes
    row: int


@dataclass(frozen=True)
class EncodedText:
    """A text that the vocabulary encodes to one of the golden inputs.

    Attributes:
        text: The text.
        row: Row of the golden input that it must encode to exactly.
    """

    text: str
    row: int


@dataclass(frozen=True)
class Golden:
    """Inputs, their logits, and encoded forms of some of them.

    Attributes:
        inputs: (n, …) in the graph's input type and shape.
        logits: float32 (n, K), finite.
        encoded: Encoded images; empty unless the input is an image.
        texts: Texts; empty unless the inputs are tokens.
    """

    inputs: NDArray[Any]
    logits: NDArray[np.float32]
    encoded: tuple[EncodedImage, ...] = ()
    texts: tuple[EncodedText, ...] = ()

    def check(self, spec: InputSpec, classes: int) -> None:
        """Raise BundleFormatError unless these are inputs and logits of such a model."""
        n = self.inputs.shape[0] if self.inputs.ndim else 0
        if n < 1 or self.inputs.shape[1:] != spec.shape or self.inputs.dtype != spec.numpy:
            raise BundleFormatError(
                "the golden inputs do not fit the model",
                file=GOLDEN_FILE,
                found=f"{self.inputs.dtype} {self.inputs.shape}",
                expected=f"{spec.numpy} {('n', *spec.shape)}",
            )
        if self.logits.dtype != np.float32 or self.logits.shape != (n, classes) or not np.isfinite(self.logits).all():
            raise BundleFormatError(
                "the golden logits do not fit the model",
                file=GOLDEN_FILE,
                found=f"{self.logits.dtype} {self.logits.shape}",
                expected=f"finite float32 {(n, classes)}",
            )
        for image in self.encoded:
            if spec.kind != "image" or image.media_type not in MEDIA_TYPES or not 0 <= image.row < n or not image.data:
                raise BundleFormatError(
                    "an encoded golden image does not belong to a golden input",
                    file=GOLDEN_FILE,
                    found=f"{image.media_type!r}, row {image.row}",
                    expected=f"one of {', '.join(MEDIA_TYPES)}, row 0 … {n - 1}",
                )
        for example in self.texts:
            if spec.kind not in ("tokens", "tensors") or not 0 <= example.row < n:
                raise BundleFormatError(
                    "a golden text does not belong to a golden input",
                    file=GOLDEN_FILE,
                    found=f"row {example.row}, input kind {spec.kind!r}",
                    expected=f"row 0 … {n - 1}, input kind 'tokens' or 'tensors'",
                )

    def check_texts(self, encode: Callable[[list[str]], NDArray[Any]]) -> None:
        """Raise BundleFormatError unless each text encodes to its golden input.

        Args:
            encode: Encodes texts as inputs (n, …).
        """
        for example in self.texts:
            if not np.array_equal(encode([example.text])[0], self.inputs[example.row]):
                raise BundleFormatError(
                    "a golden text does not encode to its golden input",
                    file=GOLDEN_FILE,
                    found=f"row {example.row}, other tokens",
                    expected="equal tokens",
                )

    def difference(self, logits: NDArray[np.float32]) -> Difference | None:
        """Return how logits (N, K) differ from the golden ones; None if they agree.

        They agree within 2e-4 of the largest logit, or within 2e-3 of it where all probabilities agree within 1e-4.
        """
        if logits.shape != self.logits.shape:
            return Difference(
                "the logits of the golden inputs have the wrong shape", list(logits.shape), list(self.logits.shape)
            )
        largest = float(np.abs(logits - self.logits).max())
        scale = 1 + float(np.abs(self.logits).max())
        if largest <= _TOLERANCE * scale:
            return None
        found, expected = [softmax(each.astype(np.float64)) for each in (logits, self.logits)]
        if largest <= _LOOSE * scale and np.abs(found - expected).max() <= _SAME:
            return None
        return Difference(
            "the golden inputs give different logits than at export",
            f"largest difference {largest:.3g}",
            f"at most {_TOLERANCE:g} of the largest logit",
        )

    def dump(self) -> bytes:
        """Return the bytes of `golden.npz`."""
        encoded = [(image.media_type, image.data, image.row) for image in self.encoded]
        encoded += [(_TEXT_TYPE, example.text.encode(), example.row) for example in self.texts]
        types, data, rows = zip(*encoded, strict=True) if encoded else ((), (), ())
        return npz.dump(
            {
                **dict(zip(_keys(self.inputs.dtype), _fields(self.inputs), strict=True)),
                "logits": self.logits,
                "encoded_bytes": np.frombuffer(b"".join(data), np.uint8),
                "encoded_ends": np.cumsum([len(part) for part in data], dtype=np.int64),
                "encoded_rows": np.array(rows, np.int64),
                "encoded_types": np.array(types, "S16"),
            }
        )

    @classmethod
    def load(cls, data: bytes, spec: InputSpec) -> Self:
        """Read `golden.npz` of a model with such inputs; raises BundleFormatError."""
        keys = _keys(spec.numpy)
        arrays = npz.load(data, _NAMES | set(keys), file=GOLDEN_FILE, max_bytes=_MAX_BYTES)
        ends, rows, types = arrays["encoded_ends"], arrays["encoded_rows"], arrays["encoded_types"]
        blob = arrays["encoded_bytes"].tobytes()
        starts = np.concatenate([[0], ends[:-1]]) if ends.ndim == 1 and ends.size else ends
        if (
            not (ends.ndim == 1 and ends.shape == rows.shape == types.shape)
            or [array.dtype.str for array in (ends, rows, types)] != ["<i8", "<i8", "|S16"]
            or (ends < starts).any()
            or (int(ends[-1]) if ends.size else 0) != len(blob)
        ):
            raise BundleFormatError("the encoded golden images are inconsistent", file=GOLDEN_FILE)
        encoded, texts = [], []
        for start, end, row, media_type in zip(starts, ends, rows, types, strict=True):
            if media_type == _TEXT_TYPE.encode():
                texts.append(EncodedText(blob[start:end].decode("utf-8", "replace"), int(row)))
            else:
                encoded.append(EncodedImage(media_type.decode("ascii", "replace"), blob[start:end], int(row)))
        return cls(_joined([arrays[key] for key in keys], spec), arrays["logits"], tuple(encoded), tuple(texts))


def _keys(dtype: np.dtype[Any]) -> list[str]:
    """Return the names of the arrays that hold inputs of a type: one for each field of a structured type."""
    return ["inputs"] if dtype.names is None else [f"inputs_{place}" for place in range(len(dtype.names))]


def _fields(inputs: NDArray[Any]) -> list[NDArray[Any]]:
    return [inputs] if inputs.dtype.names is None else [inputs[name] for name in inputs.dtype.names]


def _joined(fields: list[NDArray[Any]], spec: InputSpec) -> NDArray[Any]:
    if spec.kind != "tensors":
        return fields[0]
    inputs = np.empty(len(fields[0]) if fields[0].ndim else 0, spec.numpy)
    for tensor, values in zip(spec.tensors, fields, strict=True):
        if values.shape != inputs[tensor.name].shape or values.dtype != inputs[tensor.name].dtype:
            raise BundleFormatError(
                f"golden inputs of tensor {tensor.name!r} do not fit the model",
                file=GOLDEN_FILE,
                found=f"{values.dtype} {values.shape}",
                expected=f"{inputs[tensor.name].dtype} {inputs[tensor.name].shape}",
            )
        inputs[tensor.name] = values
    return inputs
