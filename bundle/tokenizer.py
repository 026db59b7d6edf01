"""From a text to several named tensors, by the `tokenizer.json` that came with the model.

The library `tokenizers` (Rust) splits the text; ids, mask and types are cut and padded to the length of the tensors.
The file is kept as it came. It comes from others, so it is bounded before the library sees it, and the library's panics
become errors.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bundle.errors import BundleError, BundleFormatError, RowError
from bundle.golden import Golden
from bundle.inputs import InputSpec, TensorSpec
from bundle.manifest import TOKENIZER_FILE

MAX_BYTES = 2**25
MAX_CHARACTERS = 1_000_000
_IDS, _MASK, _TYPES = "ids", "attention_mask", "type_ids"
_ROLES = {
    **dict.fromkeys(("input_ids", "ids", "token_ids", "tokens"), _IDS),
    **dict.fromkeys(("attention_mask", "input_mask", "mask"), _MASK),
    **dict.fromkeys(("token_type_ids", "type_ids", "segment_ids"), _TYPES),
}
_PADDING = ("[PAD]", "<pad>", "<|pad|>", "<|padding|>")
_PROBE = ("", "A text, 1 word and 2 … ?!", "\u4e2d\u6587 \u0645\u0631\u062d\u0628\u0627 \U0001f600 \x00\ufffd")
_MAX_COMPONENTS = 256
_MAX_GROWTH = 1024
_MAX_ADDED = 2_000_000
_MAX_WORD = 1000


@dataclass(frozen=True)
class _Padding:
    """How short texts are padded."""

    ids: int
    types: int
    left: bool

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """Return how the file pads, or how to pad with the padding token of its vocabulary."""
        given = tokenizer.padding
        if given is not None:
            return cls(given["pad_id"], given["pad_type_id"], given["direction"] == "left")
        for token in _PADDING:
            if (number := tokenizer.token_to_id(token)) is not None:
                return cls(number, 0, left=False)
        known = ", ".join(_PADDING)
        raise _wrong("the tokenizer has no padding token", "none", f"`padding` in the file, or one of {known}")

    def fill(self, column: NDArray[Any], texts: list[list[int]], role: str) -> None:
        """Write the values of texts into a column (N, L); raises ValueError where a text is longer than L."""
        column[...] = {_IDS: self.ids, _TYPES: self.types, _MASK: 0}[role]
        for row, values in zip(column, texts, strict=True):
            row[slice(len(row) - len(values), None) if self.left else slice(len(values))] = values


@dataclass(frozen=True)
class Tokenizer:
    """A `tokenizer.json` and the tensors that it fills.

    A tensor is filled by its name: `input_ids`, `attention_mask`, `token_type_ids` or a usual variant of one; a single
    tensor takes the ids whatever its name. All have the shape (L,): longer texts are cut and shorter ones padded, on
    the side and with the token that the file names, else at the end.

    Attributes:
        data: The bytes of `tokenizer.json`.
        input: Specification of one example, of kind `tensors`.

    Raises:
        BundleFormatError: The file is not a tokenizer that encodes any text, is out of bounds, or does not fit the
            tensors; or the package `tokenizers` is not installed.
    """

    data: bytes = field(repr=False)
    input: InputSpec
    _roles: dict[str, str] = field(init=False, repr=False, compare=False)
    _ids: int = field(init=False, repr=False, compare=False)
    _padding: _Padding = field(init=False, repr=False, compare=False)
    _tokenizer: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        roles, length = _roles(self.input)
        document = _document(self.data)
        _bound(document)
        with _guarded(lambda why: _wrong("the tokenizer cannot be used", why)):
            tokenizer = _library().Tokenizer.from_buffer(self.data)
            ids = 1 + max(tokenizer.get_vocab().values(), default=-1)
            added = tokenizer.num_special_tokens_to_add(False)
            if added >= length:
                raise _wrong("no room for a text", f"{added} special tokens for {length} tokens", "fewer")
            given = tokenizer.truncation or {}
            tokenizer.enable_truncation(length, direction=given.get("direction", "right"))
            padding = _Padding.of(tokenizer)
            tokenizer.no_padding()  # arrays are padded several times as fast as lists
        for tensor in self.input.tensors:
            if roles[tensor.name] == _IDS and ids - 1 > np.iinfo(tensor.dtype).max:
                raise _wrong(f"the ids do not fit the tensor {tensor.name!r}", f"{ids} ids", tensor.dtype)
        for name, value in {"_roles": roles, "_ids": ids, "_padding": padding, "_tokenizer": tokenizer}.items():
            object.__setattr__(self, name, value)
        try:
            self.encode(_PROBE)
        except RowError as error:
            raise _wrong(error.message, error.found or "", "a tokenizer that encodes any text") from error

    def __len__(self) -> int:
        """Return the number of token ids: one more than the largest."""
        return self._ids

    @property
    def padding(self) -> int:
        """Id of the padding token."""
        return self._padding.ids

    @property
    def mask(self) -> str | None:
        """Name of the tensor that is 0 for padding; None if there is none."""
        return next((name for name, role in self._roles.items() if role == _MASK), None)

    def encode(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return texts as the tensors of the model, a structured array (N,).

        One thread encodes, without holding Python's lock, unless the variable TOKENIZERS_PARALLELISM is true.

        Raises:
            RowError: A text is longer than `MAX_CHARACTERS`, is not valid Unicode, or the tokenizer fails on it.
        """
        for text in texts:
            if len(text) > MAX_CHARACTERS:
                raise RowError("the text is too long", found=f"{len(text)}", expected=f"{MAX_CHARACTERS} characters")
        records = np.empty(len(texts), self.input.numpy)
        with _guarded(lambda why: RowError("the tokenizer cannot encode the text", found=why)):
            encoded = self._tokenizer.encode_batch_fast(list(texts))
            for name, role in self._roles.items():
                self._padding.fill(records[name], [getattr(each, role) for each in encoded], role)
        if self.mask is not None:
            # A text without tokens keeps one: what attention to nothing gives differs from library to library.
            records[self.mask][~records[self.mask].any(axis=1), 0] = 1
        return records

    def decode(self, record: NDArray[Any]) -> str:
        """Return the text of one example, a row of `encode` with shape (), without special tokens and padding.

        It is the text as the model sees it: normalised by the tokenizer and cut.

        Raises:
            RowError: The library cannot decode the ids.
        """
        ids = next(record[name] for name, role in self._roles.items() if role == _IDS)
        kept = ids != self._padding.ids if self.mask is None else record[self.mask] != 0
        with _guarded(lambda why: RowError("the tokenizer cannot decode the ids", found=why)):
            return str(self._tokenizer.decode(ids[kept].tolist(), skip_special_tokens=True))

    def check(self, spec: InputSpec) -> None:
        """Raise BundleFormatError unless the tokenizer fills this input."""
        if spec != self.input:
            raise _wrong("the tokenizer fills other tensors", repr(self.input), repr(spec))

    def check_golden(self, golden: Golden) -> None:
        """Raise BundleFormatError unless golden texts encode to their golden inputs."""
        golden.check_texts(self.encode)

    def dump(self) -> bytes:
        """Return the bytes of `tokenizer.json`, as they came."""
        return self.data


def _roles(spec: InputSpec) -> tuple[dict[str, str], int]:
    """Return the role of each tensor by its name, and the length of all."""
    shapes = {tensor.shape for tensor in spec.tensors}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1 or any(tensor.dtype == "string" for tensor in spec.tensors):
        found = ", ".join(f"{tensor.name} {tensor.dtype} {list(tensor.shape)}" for tensor in spec.tensors)
        raise _wrong("a tokenizer fills numeric vectors of one length", found or spec.kind, "tensors of shape [L]")
    roles = {tensor.name: _IDS if len(spec.tensors) == 1 else _role(tensor) for tensor in spec.tensors}
    if len(set(roles.values())) != len(roles) or _IDS not in roles.values():
        raise _wrong("the tensors do not have one role each", str(roles), "token ids, and at most a mask and types")
    if any(np.dtype(tensor.dtype).kind not in "iu" for tensor in spec.tensors if roles[tensor.name] == _IDS):
        found = ", ".join(f"{tensor.name} {tensor.dtype}" for tensor in spec.tensors)
        raise _wrong("token ids are whole numbers", found, "int32 or int64")
    return roles, next(iter(shapes))[0]


def _role(tensor: TensorSpec) -> str:
    name = tensor.name.rpartition("/")[2].partition(":")[0].lower()
    if name not in _ROLES:
        raise _wrong("the tokenizer does not fill this tensor", repr(tensor.name), f"one of {', '.join(_ROLES)}")
    return _ROLES[name]


def _document(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise _wrong("too large", f"{len(data)} bytes", f"at most {MAX_BYTES}")
    try:
        document = json.loads(data, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise _wrong("not valid JSON", str(error), "the file that `Tokenizer.save` writes") from error
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise _wrong("not a tokenizer", type(document).__name__, "an object with `model`")
    return document


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _bound(document: dict[str, Any]) -> None:
    """Refuse what would make a text grow without bound, or loading take minutes."""
    added = document.get("added_tokens") or []
    model = document["model"]
    try:
        contents = sum(len(token["content"]) for token in added)
        affixes = [len(model.get(name) or "") for name in ("continuing_subword_prefix", "end_of_word_suffix")]
        word = max(int(model.get("max_input_chars_per_word") or 0), *affixes)
        parts = [document.get(name) for name in ("normalizer", "pre_tokenizer", "post_processor")]
        components = [part for each in parts for part in _components(each)]
        growth = math.prod(map(_growth, components))
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise _wrong("not a tokenizer", repr(error), "the file that `Tokenizer.save` writes") from error
    for message, found, most in (
        ("too many characters in added tokens", contents, _MAX_ADDED),
        ("too many characters per word", word, _MAX_WORD),
        ("too many components", len(components), _MAX_COMPONENTS),
        ("the components make a text too much longer", growth, _MAX_GROWTH),
    ):
        if found > most:
            raise _wrong(message, f"{found:,.0f}", f"at most {most:,}")


def _components(part: Any) -> Iterator[dict[str, Any]]:
    """Yield a component and all objects in it, in any depth."""
    if isinstance(part, dict):
        yield part
    if isinstance(part, dict | list):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _components(inner)


def _growth(component: dict[str, Any]) -> float:
    """Return by what factor a component can make a text longer, at most."""
    kind = component.get("type")
    if kind == "Replace":
        pattern = component["pattern"].get("String", "")  # an expression can match the empty text between characters
        return max(1.0, len(component["content"]) / len(pattern)) if pattern else 1.0 + len(component["content"])
    if kind == "Precompiled":
        data = base64.b64decode(component["precompiled_charsmap"])
        return max(1.0, *map(len, data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")))
    if kind == "Prepend":
        return 1.0 + len(component["prepend"])
    return 4.0 if kind == "ByteLevel" else 1.0


@contextmanager
def _guarded(error_of: Callable[[str], BundleError]) -> Iterator[None]:
    """Turn errors and panics of the library into an error of the bundle."""
    try:
        yield
    except BundleError:
        raise
    except BaseException as error:
        # A panic derives from BaseException, and its class cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise error_of(str(error)[:300]) from error


def _library() -> Any:
    # Read at each call: its threads would compete with those of the model.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import tokenizers
    except ImportError as error:
        raise _wrong(
            "the package `tokenizers` is not installed", str(error), "the extra: python requirements/install.py text"
        ) from error
    return tokenizers


def _wrong(message: str, found: str, expected: str | None = None) -> BundleFormatError:
    return BundleFormatError(message, file=TOKENIZER_FILE, found=found[:300], expected=expected)
