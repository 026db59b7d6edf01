"""Input tensors of /v2: from JSON, from the bytes after it, or from encoded images and texts."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bundle import InputSpec, Tokenizer, Vocabulary
from bundle.open_inference import BYTES, OF_DTYPE
from service.errors import InputError, InputShapeError, InputTypeError, InputValueError, kind_of
from service.inference.amounts import check_amount
from service.inference.encoded import decode_base64, encode_texts
from service.inference.inputs import Encoder, check_rows
from service.inference.names import check_name
from service.inference.nested import has_booleans
from service.open_inference import parameters
from service.open_inference.datatypes import BOOL, DATATYPES, Datatype, accepted, from_bfloat16, without_loss
from service.open_inference.errors import rows_of_the_tensor
from service.places import Place, in_body

_MAX_AXES: Final = 32
_INTEGERS: Final = frozenset({int})
_NUMPY: Final = {**DATATYPES, BOOL: Datatype(np.dtype("?"), "?", whole=False)}
_IN_JSON: Final[dict[str, tuple[frozenset[type], str]]] = {
    "?": (frozenset({bool}), "true and false"),
    "i": (frozenset({int}), "integers"),
    "f": (frozenset({int, float}), "numbers"),
}
"""Python types of values in JSON, and their name, by kind of datatype."""
_FEW: Final = 64  # values, whose types are looked at sooner than a body is searched


def raw_tensor(body: bytes, datatype: str, shape: tuple[int, ...]) -> InputTensor:
    """Return a body that is the input tensor alone, in the datatype of the model.

    Args:
        body: Whole body.
        datatype: Datatype of the model.
        shape: Shape of one example.

    Raises:
        InputShapeError: The body is not a whole number of examples.
    """
    row = math.prod(shape) * _NUMPY[datatype].dtype.itemsize
    if not body or len(body) % row:
        raise InputShapeError(
            "The body is not a whole number of examples.",
            where=in_body("inputs", 0),
            found=f"{len(body)} bytes",
            expected=f"a multiple of {row} bytes: {datatype} of shape {list(shape)}",
            remedy="Without a JSON part (Inference-Header-Content-Length: 0), the body is the input tensor alone.",
        )
    document = {"shape": [len(body) // row, *shape], "datatype": datatype}
    return InputTensor(document | {"parameters": {"binary_data_size": len(body)}}, in_body("inputs", 0), start=0)


class InputTensor:
    """A tensor described by a request.

    Args:
        document: Entry of `inputs`.
        where: Place of the entry, for errors.
        start: Offset of binary data in the body.

    Attributes:
        where: As above.
        end: End of binary data in the body; `start` for data in JSON.

    Raises:
        InputError: The entry does not describe a tensor.
    """

    def __init__(self, document: dict[str, Any], where: Place, *, start: int) -> None:
        self.where = where
        shape = document.get("shape")
        if not isinstance(shape, list) or not _INTEGERS.issuperset(map(type, shape)) or min(shape, default=0) < 0:
            raise InputShapeError(
                "`shape` must be an array of sizes.",
                where=where / "shape",
                found=[kind_of(side) if type(side) is not int else side for side in shape[:_MAX_AXES]]
                if isinstance(shape, list)
                else kind_of(shape),
                expected="integers of 0 or more",
            )
        if len(shape) > _MAX_AXES:
            raise InputShapeError(
                "The tensor has too many axes.",
                where=where / "shape",
                found=len(shape),
                expected=f"at most {_MAX_AXES}",
            )
        self.shape = tuple(shape)
        self.count = math.prod(shape)  # Python integers: a hostile shape must not overflow
        if self.count == 0:
            raise InputShapeError(
                "The tensor is empty.", where=where / "shape", found=shape, expected="at least 1 example"
            )
        self.datatype: Any = document.get("datatype")
        self.size = parameters.of_tensor(document, "input", where).get("binary_data_size")
        if self.size is not None and (type(self.size) is not int or self.size < 0):
            raise InputTypeError(
                "`binary_data_size` must be a number of bytes.",
                where=where / "parameters" / "binary_data_size",
                found=kind_of(self.size) if type(self.size) is not int else self.size,
                expected="an integer of 0 or more",
            )
        self._start, self.end = start, start + (self.size or 0)
        self.data = document.get("data")
        if (self.data is None) == (self.size is None):
            raise InputError(
                "A tensor requires either `data` or the parameter `binary_data_size`.",
                where=where,
                found="both" if self.data is not None else "neither",
                expected="one of them",
            )
        if self.data is not None and not isinstance(self.data, list):
            raise InputTypeError(
                "`data` must be an array.", where=where / "data", found=kind_of(self.data), expected="array"
            )

    def inputs(
        self, body: bytes, spec: InputSpec, encoder: Encoder | None, max_rows: int
    ) -> npt.NDArray[Any] | list[bytes]:
        """Return the values of the tensor as an array, or as encoded images.

        Args:
            body: Whole body, at least up to `end`.
            spec: Input of the model.
            encoder: Encoder of texts in the bundle of the model.
            max_rows: Maximum number of texts or images.

        Raises:
            InputError: The values cannot be used.
        """
        if self.datatype == BYTES and (spec.kind == "image" or isinstance(encoder, Vocabulary | Tokenizer)):
            return self._encoded(body, spec, encoder, max_rows)
        self._check_datatype((BYTES,) if isinstance(encoder, Tokenizer) else accepted(spec.dtype))
        return self._numbers(body, spec.dtype, spec.shape).reshape(self.shape)

    def numbers(self, body: bytes, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return numbers or booleans as an array (N, *shape) of `dtype`; of shape [N] or [N, 1] for one value per row.

        Raises:
            InputError: The tensor has another datatype or shape, its data do not match them, or lose a value.
        """
        self._check_datatype(accepted(dtype))
        self._check_shape(shape)
        return self._numbers(body, dtype, shape).reshape(-1, *shape)

    def texts(self, body: bytes, shape: tuple[int, ...]) -> list[str]:
        """Return the texts of BYTES of shape (N, *shape), flat; of shape [N] or [N, 1] for one text per row.

        Raises:
            InputError: The tensor has another datatype or shape, or its data do not match them.
        """
        self._check_datatype((BYTES,))
        self._check_shape(shape)
        return self._strings() if self.data is not None else self._texts(self._elements(body))

    def cells(self, body: bytes, datatypes: Sequence[str]) -> list[Any]:
        """Return a column of a table, of shape [N] or [N, 1]: numbers or texts, and None for null in JSON.

        Raises:
            InputError: The tensor has another datatype or shape, or its data do not match them.
        """
        self._check_datatype(datatypes)
        self._check_shape(())
        if self.data is None:
            return self._texts(self._elements(body)) if self.datatype == BYTES else self._from_binary(body).tolist()
        cells = self._flat()
        present = [cell for cell in cells if cell is not None]
        values = iter(self._strings_of(present) if self.datatype == BYTES else self._pack(present, body).tolist())
        return [None if cell is None else next(values) for cell in cells]

    def names(self, body: bytes, max_rows: int) -> list[str | None]:
        """Return the client's names of the rows, from BYTES of shape [N] or [N, 1]; an empty text means no name.

        Raises:
            InputError: The tensor contains something else, or a name that is not allowed.
        """
        self._check_datatype((BYTES,), "Names must be texts.")
        if self.shape not in ((self.count,), (self.count, 1)):
            raise InputShapeError(
                "Each row requires exactly one name.",
                where=self.where / "shape",
                found=list(self.shape),
                expected="[N]",
            )
        check_rows(self.count, max_rows)
        texts = self._strings() if self.data is not None else self._texts(self._elements(body))
        return [
            check_name(text, "A name has", self.where.tensor_row(row)) if text else None
            for row, text in enumerate(texts)
        ]

    def amounts(self, body: bytes, max_rows: int) -> list[float | None]:
        """Return the client's amounts of the rows, numbers of shape [N] or [N, 1]; null or NaN means no amount.

        Raises:
            InputError: The tensor contains something else, or an amount that is not allowed.
        """
        cells = self.cells(body, accepted("float64"))
        check_rows(self.count, max_rows)
        return [
            None if cell is None or cell != cell else check_amount(cell, self.where.tensor_row(row))
            for row, cell in enumerate(cells)
        ]

    def _numbers(self, body: bytes, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return flat numbers in the type of the model, whose examples have `shape`."""
        flat = self._pack(self._flat(), body) if self.data is not None else self._from_binary(body)
        converted, lost = without_loss(flat, np.dtype(dtype))
        if lost is not None:
            raise InputValueError(
                f"{OF_DTYPE[dtype]} cannot hold a value of the tensor.",
                where=self.where.tensor_row(lost // math.prod(shape)),
                found=f"{flat[lost]!s} ({self.datatype})",
                expected=f"numbers of {OF_DTYPE[dtype]}",
                remedy=f"Convert the values yourself and send {OF_DTYPE[dtype]}.",
            )
        return converted

    def _from_binary(self, body: bytes) -> npt.NDArray[Any]:
        dtype = _NUMPY[self.datatype].dtype
        if self.size != self.count * dtype.itemsize:
            raise self._wrong_count(f"{self.size} bytes", f"{self.count * dtype.itemsize} bytes")
        flat = np.frombuffer(body, dtype, self.count, self._start)
        if self.datatype == "BF16":
            return from_bfloat16(flat)
        if self.datatype == BOOL and flat.view(np.uint8).max() > 1:
            raise InputValueError(
                "A byte of a BOOL tensor must be 0 or 1.",
                where=self.where,
                found=int(flat.view(np.uint8).max()),
                expected="0 or 1",
            )
        # JSON of any length comes before, and ONNX Runtime requires aligned vectors.
        return flat if flat.flags.aligned else flat.copy()

    def _check_datatype(self, known: Sequence[str], message: str = "") -> None:
        if self.datatype not in known:
            raise InputTypeError(
                message or f"The model takes {known[0]}.",
                where=self.where / "datatype",
                found=self.datatype[:40] if isinstance(self.datatype, str) else kind_of(self.datatype),
                expected=list(known) if len(known) > 1 else known[0],
            )

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        single = shape in ((), (1,))
        if self.shape[1:] != shape and not (single and self.shape[1:] in ((), (1,))):
            raise InputShapeError(
                "The tensor has the wrong shape.",
                where=self.where / "shape",
                found=list(self.shape),
                expected="[N] or [N, 1]" if single else f"[N, {', '.join(map(str, shape))}]",
            )

    def _pack(self, flat: list[Any], body: bytes) -> npt.NDArray[Any]:
        """Return numbers or booleans of JSON, which `body` contains, in the datatype of the tensor."""
        datatype = _NUMPY[self.datatype]
        if datatype.code is None:
            raise InputTypeError(
                f"{self.datatype} cannot be sent as JSON.",
                where=self.where / "data",
                found=self.datatype,
                expected="binary data, or FP32",
            )
        # True is an int in Python. A look at the types takes several times as long as the conversion, which refuses
        # all other wrong types itself.
        if datatype.code == "?" or len(flat) <= _FEW or has_booleans(body):
            self._check_types(flat)
        try:
            # Four times as fast as numpy.array on a list, with range checks.
            packed = bytes(flat) if datatype.code == "B" else struct.pack(f"{len(flat)}{datatype.code}", *flat)
        except (struct.error, OverflowError, TypeError, ValueError):
            self._check_types(flat)
            raise InputValueError(
                f"A value in `data` is not a valid {self.datatype}.", where=self.where / "data", expected=self.datatype
            ) from None
        return np.frombuffer(packed, datatype.dtype)

    def _check_types(self, flat: list[Any]) -> None:
        datatype = _NUMPY[self.datatype]
        types, what = _IN_JSON["?" if datatype.code == "?" else "i" if datatype.whole else "f"]
        if not types.issuperset(map(type, flat)):
            raise InputTypeError(
                f"`data` must contain {what} only.",
                where=self.where / "data",
                found="other values",
                expected=self.datatype,
            )

    def _encoded(
        self, body: bytes, spec: InputSpec, encoder: Encoder | None, max_rows: int
    ) -> npt.NDArray[Any] | list[bytes]:
        """Return encoded texts, or images still to be decoded."""
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
        """Return the elements of a BYTES tensor: for each, its length in four bytes and its bytes."""
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
        return self._strings_of(self._flat())

    def _strings_of(self, flat: list[Any]) -> list[str]:
        if not set(map(type, flat)) <= {str}:
            raise InputTypeError(
                "`data` must contain strings only.", where=self.where / "data", found="other values", expected=BYTES
            )
        return flat

    def _flat(self) -> list[Any]:
        """Return `data` flat in row-major order; it may be nested like the shape."""
        data: list[Any] = self.data  # type: ignore[assignment]  # only called with data
        if data and type(data[0]) is list:
            level = [data]
            for side in self.shape:
                if set(map(type, level)) != {list} or set(map(len, level)) != {side}:
                    raise InputShapeError(
                        "The nesting of `data` does not match `shape`.",
                        where=self.where / "data",
                        found="lists of other lengths or other values",
                        expected=list(self.shape),
                    )
                level = list(chain.from_iterable(level))
            return level
        if len(data) != self.count:
            raise self._wrong_count(f"{len(data)} values", f"{self.count} values")
        return data

    def _wrong_count(self, found: str, expected: str) -> InputShapeError:
        return InputShapeError(
            "The length of the tensor data does not match its shape and datatype.",
            where=self.where,
            found=found,
            expected=f"{expected} for {self.datatype} of shape {list(self.shape)}",
        )

    def _texts(self, elements: list[bytes]) -> list[str]:
        """Return elements as texts."""
        texts = []
        per_row = max(1, len(elements) // self.shape[0]) if self.shape else 1
        for index, element in enumerate(elements):
            try:
                texts.append(element.decode())
            except UnicodeDecodeError as error:
                raise InputValueError(
                    f"The text is not UTF-8: {error.reason} at byte {error.start}.",
                    where=self.where.tensor_row(index // per_row),
                    found=f"byte 0x{element[error.start]:02x}",
                    expected="text in UTF-8",
                ) from None
        return texts
