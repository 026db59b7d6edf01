"""Tokens of texts, before the training rows decide on the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bundle.text import PAD, SPECIAL, Vocabulary, words_of
from training.errors import ConfigurationError
from training.scratch import empty


def require_sizes(length: int, vocabulary_size: int) -> None:
    """Raise ConfigurationError if the length is below 1 or the vocabulary cannot hold padding and unknown."""
    if length < 1 or vocabulary_size < len(SPECIAL):
        raise ConfigurationError(f"length is {length} and vocabulary_size {vocabulary_size}, expected at least 1 and 2")


def tokens_of(texts: Sequence[str], length: int) -> tuple[NDArray[np.int32], Vocabulary]:
    """Number the words of texts in order of appearance.

    Args:
        texts: N texts.
        length: Words to read from the beginning of a text.

    Returns:
        Tokens int32 (N, length), and the vocabulary of all words.

    Example:
        >>> tokens, vocabulary = tokens_of(["To be, or not", "Not to be"], 4)
        >>> tokens.tolist(), vocabulary.words[2:]
        ([[2, 3, 4, 5], [5, 2, 3, 0]], ('to', 'be', 'or', 'not'))
    """
    ids: dict[str, int] = {word: number for number, word in enumerate(SPECIAL)}
    tokens = empty((len(texts), length), np.int32)
    for row, text in zip(tokens, texts, strict=True):
        known = [ids.setdefault(word, len(ids)) for word in islice(words_of(text), length)]
        row[: len(known)], row[len(known) :] = known, PAD
    return tokens, Vocabulary(tuple(ids), length)
