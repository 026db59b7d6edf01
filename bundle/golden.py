"""Golden inputs: a few examples with the logits that the model must give for them, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bundle import npz
from bundle.errors import BundleFormatError
from bundle.manifest import GOLDEN_FILE, InputSpec

MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp")
_TEXT_TYPE = "text/plain"
_NAMES = frozenset({"inputs", "logits", "encoded_bytes", "encoded_ends", "encoded_rows", "encoded_types"})
_MAX_BYTES = 2**26


@dataclass(frozen=True)
class EncodedImage:
    """An encoded image that decodes to one of the golden inputs.

    Attributes:
        media_type: `image/png`, `image/jpeg` or `image/webp`.
        data: The encoded bytes.
        row: Row of the golden input that it decodes to, exactly.
    """

    media_type: str
    data: bytes
    row: int


@dataclass(frozen=True)
class EncodedText:
    """A text that the vocabulary encodes to one of the golden inputs.

    Attributes:
        text: The text.
        row: Row of the golden input that it is encoded to, exactly.
    """

    text: str
    row: int


@dataclass(frozen=True)
class Golden:
    """Inputs, the logits they must give, and encoded forms of some of them.

    Attributes:
        inputs: (n, …) in the graph's input type and shape.
        logits: float32 (n, K), finite.
        encoded: Encoded images; empty where the input is no image.
        texts: Texts; empty where the input is no tokens.
    """

    inputs: NDArray[Any]
    logits: NDArray[np.float32]
    encoded: tuple[EncodedImage, ...] = ()
    texts: tuple[EncodedText, ...] = ()

    def check(self, spec: InputSpec, classes: int) -> None:
        """Raise BundleFormatError unless these are inputs and logits of such a model."""
        n = self.inputs.shape[0] if self.inputs.ndim else 0
        if n < 1 or self.inputs.shape[1:] != spec.shape or self.inputs.dtype != np.dtype(spec.dtype):
            raise BundleFormatError(
                "the golden inputs do not fit the model",
                file=GOLDEN_FILE,
                found=f"{self.inputs.dtype} {self.inputs.shape}",
                expected=f"{spec.dtype} {('n', *spec.shape)}",
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
                    "an encoded golden image belongs to no golden input",
                    file=GOLDEN_FILE,
                    found=f"{image.media_type!r}, row {image.row}",
                    expected=f"one of {', '.join(MEDIA_TYPES)}, row 0 … {n - 1}",
                )
        for example in self.texts:
            if spec.kind != "tokens" or not 0 <= example.row < n:
                raise BundleFormatError(
                    "a golden text belongs to no golden input",
                    file=GOLDEN_FILE,
                    found=f"row {example.row}, input kind {spec.kind!r}",
                    expected=f"row 0 … {n - 1}, input kind 'tokens'",
                )

    def dump(self) -> bytes:
        """The bytes of `golden.npz`."""
        encoded = [(image.media_type, image.data, image.row) for image in self.encoded]
        encoded += [(_TEXT_TYPE, example.text.encode(), example.row) for example in self.texts]
        types, data, rows = zip(*encoded, strict=True) if encoded else ((), (), ())
        return npz.dump(
            {
                "inputs": self.inputs,
                "logits": self.logits,
                "encoded_bytes": np.frombuffer(b"".join(data), np.uint8),
                "encoded_ends": np.cumsum([len(part) for part in data], dtype=np.int64),
                "encoded_rows": np.array(rows, np.int64),
                "encoded_types": np.array(types, "S16"),
            }
        )

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Read `golden.npz`; raises BundleFormatError."""
        arrays = npz.load(data, _NAMES, file=GOLDEN_FILE, max_bytes=_MAX_BYTES)
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
        return cls(arrays["inputs"], arrays["logits"], tuple(encoded), tuple(texts))
