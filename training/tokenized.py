"""Texts for a network that comes with a tokenizer of its own. Nothing here imports torch.

While training, ids and mask of a text are one array int32 (2, L), so that the loop handles texts as it handles images;
the bundle's graph takes them as two tensors int64 (L,), as imported graphs do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle import BundleFormatError, InputSpec, RowError, TensorSpec, Tokenizer
from training.errors import ConfigurationError
from training.kept_texts import KeptTexts
from training.scratch import empty

TENSORS = ("input_ids", "attention_mask")
_LONGEST = 512
_CHUNK = 1024


def tokenizer_of(model: str, max_length: int | None = None) -> Tokenizer:
    """Return the tokenizer in the folder of a model.

    Args:
        model: `hf:FOLDER`.
        max_length: Tokens per text, L; None for what the folder says, at most 512.

    Raises:
        ConfigurationError: The folder has no tokenizer.json that can be used, or its model takes fewer tokens.
    """
    folder = Path(model.partition(":")[2])
    try:
        content = (folder / "tokenizer.json").read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{folder / 'tokenizer.json'} cannot be read ({error.strerror}), expected a tokenizer, which texts "
            "require; AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers writes one"
        ) from error
    longest = min(
        _number(folder / "tokenizer_config.json", "model_max_length"),
        _number(folder / "config.json", "max_position_embeddings"),
    )
    if max_length is not None and max_length > longest:
        raise ConfigurationError(f"max_length is {max_length}, expected at most {longest:g}, the limit of {folder}")
    length = int(min(longest, _LONGEST)) if max_length is None else max_length
    fields = tuple(TensorSpec(name=name, dtype="int64", shape=(length,)) for name in TENSORS)
    try:
        return Tokenizer(content, InputSpec(kind="tensors", dtype="record", tensors=fields))
    except BundleFormatError as error:
        raise ConfigurationError(f"{folder}: {error}") from error


def encoded(tokenizer: Tokenizer, texts: KeptTexts) -> NDArray[np.int32]:
    """Return ids and mask of N texts, int32 (N, 2, L); raises ConfigurationError for a text that is too long."""
    length = tokenizer.input.tensors[0].shape[0]
    pairs = empty((len(texts), len(TENSORS), length), np.int32)
    for start in range(0, len(texts), _CHUNK):
        try:
            pairs[start : start + _CHUNK] = as_pairs(tokenizer.encode(texts[start : start + _CHUNK].tolist()))
        except RowError as error:
            raise ConfigurationError(f"a text from row {start + 1} on cannot be used: {error}") from error
    return pairs


def as_pairs(records: NDArray[Any]) -> NDArray[np.int32]:
    """Return the tensors of a bundle, structured (N,), as int32 (N, 2, L)."""
    return np.stack([records[name] for name in TENSORS], axis=1).astype(np.int32)


def as_records(pairs: NDArray[np.int32], spec: InputSpec) -> NDArray[Any]:
    """Return int32 (N, 2, L) as the tensors of a bundle, structured (N,)."""
    records = np.empty(len(pairs), spec.numpy)
    for place, name in enumerate(TENSORS):
        records[name] = pairs[:, place]
    return records


def _number(path: Path, key: str) -> float:
    """Return a limit that a folder names, infinity without one; absent ones may be 10³⁰ there."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")).get(key)
    except FileNotFoundError:
        return float("inf")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{path} is not a valid JSON object: {error}") from error
    return found if isinstance(found, int | float) and found >= 1 else float("inf")
