"""The tensors of an inference request: from JSON, from the bytes behind it, or from encoded images and texts."""

from __future__ import annotations

import math
import struct
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bundle import InputSpec, Vocabulary
from service.errors import InputError, InputShapeError, InputTypeError, InputValueError
from service.inference.inputs import Encoder, check_rows
from service.rest.encoded import decode_base64, encode_texts
from service.rest.payloads import check_name
from service.rest.v2 import fields
from service.rest.v2.datatypes import BYTES, DATATYPES, OF_DTYPE, accepted, from_bfloat16
from service.rest.v2.errors import rows_of_the_tensor
from service.rest.v2.fields import kind_of

_MAX_AXES: Final = 32


def raw_tensor(body: bytes, spec: InputSpec) -> npt.NDArray[Any]:
    """Return a body that is nothing but the input tensor, in the model's own datatype.

    Raises:
        InputShapeError: It is not a whole number of examples.
    """
    dtype = DATATYPES[OF_DTYPE[spec.dtype]].dtype
    row = math.prod(spec.shape) * dtype.itemsize
    if not body or len(body) % row:
        raise InputShapeError(
            "The body is not a whole number of examples.",
            where="/inputs/0",
            found=f"{len(body)} bytes",
            expected=f"a multiple of {row} bytes: {OF_DTYPE[spec.dtype]} of shape {list(spec.shape)}",
            remedy="Without a JSON part (Inference-Header-Content-Length: 0) the body is the input tensor alone.",
        )
    return np.frombuffer(body, dtype).reshape(-1, *spec.shape)


class InputTensor:
    """A tensor as a request describes it.

    Args:
        document: One entry of `inputs`.
        where: Its place in the request, for errors.
        start: Where its bytes begin in the body, if it is sent in binary.

    Attributes:
        where: As above.
        end: Where its bytes end; at `start` if it is sent in JSON.

    Raises:
        InputError: It does not describe a tensor.
    """

    def __init__(self, document: dict[str, Any], where: str, *, start: int) -> None:
        self.where = where
        shape = document.get("shape")
        if not isinstance(shape, list) or not all(type(side) is int and side >= 0 for side in shape):
            raise InputShapeError(
                "`shape` must be an array of sizes.",
                where=f"{where}/shape",
                found=[kind_of(side) if type(side) is not int else side for side in shape[:_MAX_AXES]]
                if isinstance(shape, list)
                else kind_of(shape),
                expected="integers of 0 or more",
            )
        if len(shape) > _MAX_AXES:
            raise InputShapeError(
                "The tensor has too many axes.", where=f"{where}/shape", found=len(shape), expected=_MAX_AXES
            )
        self.shape = tuple(shape)
        self.count = math.prod(shape)  # Python integers: a hostile shape must not overflow
        if self.count == 0:
            raise InputShapeError(
                "The tensor is empty.", where=f"{where}/shape", found=shape, expected="at least 1 example"
            )
        self.datatype: Any = document.get("datatype")
        parameters = fields.parameters(document, where)
        fields.refuse_shared_memory(parameters, where)
        self.size = parameters.get("binary_data_size")
        if self.size is not None and (type(self.size) is not int or self.size < 0):
            raise InputTypeError(
                "`binary_data_size` must be a number of bytes.",
                where=f"{where}/parameters/binary_data_size",
                found=kind_of(self.size) if type(self.size) is not int else self.size,
                expected="an integer of 0 or more",
            )
        self._start, self.end = start, start + (self.size or 0)
        self.data = document.get("data")
        if (self.data is None) == (self.size is None):
            raise InputError(
                "A tensor has either `data` or the parameter `binary_data_size`.",
                where=where,
                found="both" if self.data is not None else "neither",
                expected="one of them",
            )
        if self.data is not None and not isinstance(self.data, list):
            raise InputTypeError(
                "`data` must be an array.", where=f"{where}/data", found=kind_of(self.data), expected="array"
            )

    def inputs(
        self, body: bytes, spec: InputSpec, encoder: Encoder | None, max_rows: int
    ) -> npt.NDArray[Any] | list[bytes]:
        """Return the tensor's values as an array that the model may take, or images that are still to be decoded.

        Args:
            body: The whole body, which ends at `end` or later.
            spec: The model's input.
            encoder: What the model's bundle carries to read texts with.
            max_rows: Texts or images that there may be.

        Raises:
            InputError: The values cannot be used.
        """
        if self.datatype == BYTES and (spec.kind == "image" or isinstance(encoder, Vocabulary)):
            return self._encoded(body, spec, encoder, max_rows)
        known = accepted(spec.dtype)
        if self.datatype not in known:
            raise InputTypeError(
                f"The model takes {known[0]}.",
                where=f"{self.where}/datatype",
                found=self.datatype[:40] if isinstance(self.datatype, str) else kind_of(self.datatype),
                expected=list(known),
            )
        flat = self._from_json() if self.data is not None else self._from_binary(body)
        return flat.reshape(self.shape)

    def names(self, body: bytes, max_rows: int) -> list[str | None]:
        """Return a client's own names of the rows, shape [N] or [N, 1] of BYTES; an empty one is none.

        Raises:
            InputError: The tensor holds something else, or a name that cannot be kept.
        """
        if self.datatype != BYTES:
            raise InputTypeError(
                "Names are texts.",
                where=f"{self.where}/datatype",
                found=self.datatype[:40] if isinstance(self.datatype, str) else kind_of(self.datatype),
                expected=BYTES,
            )
        if self.shape not in ((self.count,), (self.count, 1)):
            raise InputShapeError(
                "There is one name for each row.", where=f"{self.where}/shape", found=list(self.shape), expected="[N]"
            )
        check_rows(self.count, max_rows)
        texts = self._strings() if self.data is not None else self._texts(self._elements(body))
        return [
            check_name(text, "A name has", f"row {row} of {self.where}") if text else None
            for row, text in enumerate(texts)
        ]

    def _from_binary(self, body: bytes) -> npt.NDArray[Any]:
        dtype = DATATYPES[self.datatype].dtype
        if self.size != self.count * dtype.itemsize:
            raise self._wrong_count(f"{self.size} bytes", f"{self.count * dtype.itemsize} bytes")
        flat = np.frombuffer(body, dtype, self.count, self._start)
        if self.datatype == "BF16":
            return from_bfloat16(flat)
        # JSON of any length comes before; ONNX Runtime reads whole vectors, which must not straddle.
        return flat if flat.flags.aligned else flat.copy()

    def _from_json(self) -> npt.NDArray[Any]:
        datatype = DATATYPES[self.datatype]
        if datatype.code is None:
            raise InputTypeError(
                f"{self.datatype} cannot be sent as JSON.",
                where=f"{self.where}/data",
                found=self.datatype,
                expected="binary data, or FP32",
            )
        flat = self._flat()
        if not set(map(type, flat)) <= ({int} if datatype.whole else {int, float}):  # in Python, true is a number too
            raise InputTypeError(
                f"`data` must hold {'integers' if datatype.whole else 'numbers'} only.",
                where=f"{self.where}/data",
                found="other values",
                expected=self.datatype,
            )
        try:
            # Four times as fast as numpy.array on a list, and checks ranges.
            packed = struct.pack(f"{len(flat)}{datatype.code}", *flat)
        except (struct.error, OverflowError):
            raise InputValueError(
                f"A value of `data` is no {self.datatype}.", where=f"{self.where}/data", expected=self.datatype
            ) from None
        return np.frombuffer(packed, datatype.dtype)

    def _encoded(
        self, body: bytes, spec: InputSpec, encoder: Encoder | None, max_rows: int
    ) -> npt.NDArray[Any] | list[bytes]:
        """Return what texts stand for, or encoded images as they are."""
        check_rows(self.count, max_rows)
        image = spec.kind == "image"
        if self.data is None:
            elements = self._elements(body)
            return elements if image else encode_texts(self._texts(elements), encoder)
        if not image:
            return encode_texts(self._strings(), encoder)
        with rows_of_the_tensor(self.where):
            return decode_base64(self._strings())

    def _elements(self, body: bytes) -> list[bytes]:
        """Return the elements of a BYTES tensor: each is its length in four bytes, then itself."""
        data = memoryview(body)[self._start : self.end]
        elements: list[bytes] = []
        start = 0
        while start < len(data) and len(elements) < self.count:
            end = start + 4 + int.from_bytes(data[start : start + 4], "little")
            elements.append(bytes(data[start + 4 : end]))
            start = end
        if start != len(data) or len(elements) != self.count:
            raise self._wrong_count(
                f"{len(elements)} elements, the last of which ends at byte {start} of {len(data)}",
                f"{self.count} elements in {len(data)} bytes",
            )
        return elements

    def _strings(self) -> list[str]:
        flat = self._flat()
        if not set(map(type, flat)) <= {str}:
            raise InputTypeError(
                "`data` must hold strings only.", where=f"{self.where}/data", found="other values", expected=BYTES
            )
        return flat

    def _flat(self) -> list[Any]:
        """Return `data`, which may be nested as the shape says, or flat in row-major order."""
        data: list[Any] = self.data  # type: ignore[assignment]  # only called where there is some
        if data and type(data[0]) is list:
            level = [data]
            for side in self.shape:
                if set(map(type, level)) != {list} or set(map(len, level)) != {side}:
                    raise InputShapeError(
                        "`data` is not nested as `shape` says.",
                        where=f"{self.where}/data",
                        found="lists of other lengths, or other values among them",
                        expected=list(self.shape),
                    )
                level = list(chain.from_iterable(level))
            return level
        if len(data) != self.count:
            raise self._wrong_count(f"{len(data)} values", f"{self.count} values")
        return data

    def _wrong_count(self, found: str, expected: str) -> InputShapeError:
        return InputShapeError(
            "The tensor's data is not as long as its shape and datatype say.",
            where=self.where,
            found=found,
            expected=f"{expected} for {self.datatype} of shape {list(self.shape)}",
        )

    def _texts(self, elements: list[bytes]) -> list[str]:
        """Return elements as texts."""
        texts = []
        for row, element in enumerate(elements):
            try:
                texts.append(element.decode())
            except UnicodeDecodeError as error:
                raise InputValueError(
                    f"The text is not UTF-8: {error.reason} at byte {error.start}.",
                    where=f"row {row} of {self.where}",
                    found=f"byte 0x{element[error.start]:02x}",
                    expected="text in UTF-8",
                ) from None
        return texts
