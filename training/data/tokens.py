"""Texts and their tokens, before the training rows decide on the vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bundle.text import MAX_WORDS, PAD, SPECIAL, UNKNOWN, Vocabulary, words_of
from training.errors import ConfigurationError
from training.kept_texts import GrowingTexts, KeptTexts
from training.scratch import Growing, changed
from training.stored import progress

_BLOCK = 1024  # texts


def require_sizes(length: int, vocabulary_size: int) -> None:
    """Raise ConfigurationError if the length is below 1 or the vocabulary cannot hold padding and unknown."""
    if length < 1 or vocabulary_size < len(SPECIAL):
        raise ConfigurationError(f"length is {length} and vocabulary_size {vocabulary_size}, expected at least 1 and 2")


def tokens_of(texts: Iterable[str], length: int) -> tuple[NDArray[np.int32], Vocabulary]:
    """Number the words of texts in order of appearance.

    Args:
        texts: N texts.
        length: Words to read from the beginning of a text.

    Returns:
        Tokens int32 (N, length), and the vocabulary of all words, or of the most frequent ones as far as a vocabulary
        holds them.

    Example:
        >>> tokens, vocabulary = tokens_of(["To be, or not", "Not to be"], 4)
        >>> tokens.tolist(), vocabulary.words[2:]
        ([[2, 3, 4, 5], [5, 2, 3, 0]], ('to', 'be', 'or', 'not'))
    """
    tokens = Tokens(length)
    for some in _blocks(texts):
        tokens.add(some)
    return tokens.finish()


class Tokens:
    """Tokens of texts that are still being read.

    Words are numbered in order of appearance. Wherever there are twice as many as a vocabulary holds, the rarer half is
    forgotten; a word that returns counts from there on (as in lossy counting).

    Args:
        length: Words to read from the beginning of a text.

    References:
        Manku and Motwani 2002, Approximate frequency counts over data streams.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._ids: dict[str, int] = {word: number for number, word in enumerate(SPECIAL)}
        self._counts = np.zeros(len(SPECIAL), np.int64)  # of all words so far, also of those that are forgotten
        self._tokens = Growing((length,), np.int32)

    def add(self, texts: Sequence[str]) -> None:
        """Append texts; raises DataError if a temporary file cannot be written."""
        ids, unused = self._ids, len(self._counts)
        rows = np.full((len(texts), self._length), PAD, np.int32)
        for row, text in zip(rows, texts, strict=True):
            known = []
            for word in islice(words_of(text), self._length):
                number = ids.get(word)
                if number is None:
                    number = ids[word] = unused
                    unused += 1
                known.append(number)
            row[: len(known)] = known
        counts = np.bincount(rows.ravel(), minlength=unused)
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        self._tokens.add(rows)
        if len(ids) > 2 * MAX_WORDS:
            self._forget()

    def finish(self) -> tuple[NDArray[np.int32], Vocabulary]:
        """Return tokens int32 (N, length) and their vocabulary."""
        if len(self._ids) > MAX_WORDS:
            self._forget()
        tokens = self._tokens.array()
        if len(self._ids) < len(self._counts):
            recoded = np.full(len(self._counts), UNKNOWN, np.int32)
            recoded[list(self._ids.values())] = np.arange(len(self._ids))
            tokens = changed(tokens, recoded.__getitem__)
        return tokens, Vocabulary(tuple(self._ids), self._length)

    def _forget(self) -> None:
        """Keep the most frequent words; of equally frequent ones those that appeared first."""
        words = list(self._ids)
        numbers = np.fromiter(self._ids.values(), np.int64, len(words))
        order = np.argsort(-self._counts[numbers[len(SPECIAL) :]], kind="stable")[: MAX_WORDS - len(SPECIAL)]
        kept = [*range(len(SPECIAL)), *(np.sort(order) + len(SPECIAL)).tolist()]
        self._ids = {words[place]: int(numbers[place]) for place in kept}


class TextsAndTokens:
    """Texts that are read: themselves, for a tokenizer, and their tokens.

    Args:
        length: Words to read from the beginning of a text.
    """

    def __init__(self, length: int) -> None:
        self._texts, self._tokens = GrowingTexts(), Tokens(length)
        self._read, self._told = 0, progress("Reading", None, "texts")

    def add(self, texts: Iterable[str]) -> None:
        """Append texts; raises DataError if a temporary file cannot be written."""
        for some in _blocks(texts):
            self._texts.add(some)
            self._tokens.add(some)
            self._read += len(some)
            self._told(self._read)

    def finish(self) -> tuple[NDArray[np.int32], Vocabulary, KeptTexts]:
        """Return tokens int32 (N, length), their vocabulary, and the texts."""
        return *self._tokens.finish(), self._texts.finish()


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    left = iter(texts)
    while some := list(islice(left, _BLOCK)):
        yield some
