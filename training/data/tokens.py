"""Texts and their tokens, before the training rows decide on the vocabulary."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bundle.text import MAX_WORDS, PAD, SPECIAL, Vocabulary, words_of
from training.errors import ConfigurationError
from training.kept_texts import GrowingTexts, KeptTexts
from training.progress import progress
from training.scratch import Growing, empty

_BLOCK = 1024  # texts
_LOG = logging.getLogger(__name__)


def require_sizes(length: int, vocabulary_size: int) -> None:
    """Raise ConfigurationError if the length is below 1 or the vocabulary cannot hold padding and unknown."""
    if length < 1 or vocabulary_size < len(SPECIAL):
        raise ConfigurationError(f"length is {length} and vocabulary_size {vocabulary_size}, expected at least 1 and 2")


class TextsAndTokens:
    """Texts that are read: themselves, for a tokenizer, and their tokens.

    Words are numbered in order of appearance. A vocabulary holds a million; where there are more, the texts are encoded
    once more at the end, with the most frequent words.

    Args:
        length: Words to read from the beginning of a text.
        words: Whether to number words; a model with a tokenizer of its own needs none.

    Raises:
        DataError: A temporary file cannot be written.

    Example:
        >>> texts = TextsAndTokens(4)
        >>> texts.add(["To be, or not", "Not to be"])
        >>> tokens, vocabulary, _ = texts.finish()
        >>> tokens.tolist(), vocabulary.words[2:]
        ([[2, 3, 4, 5], [5, 2, 3, 0]], ('to', 'be', 'or', 'not'))
    """

    def __init__(self, length: int, *, words: bool = True) -> None:
        self._length, self._numbering = length, words
        self._words, self._texts = _Words(), GrowingTexts()
        self._tokens: Growing | None = Growing((length,), np.int32)

    def add(self, texts: Iterable[str]) -> None:
        """Append texts."""
        for some in _blocks(texts):
            self._texts.add(some)
            if not self._numbering:
                continue
            rows = self._words.numbers(some, self._length)
            if self._words.lowest:
                self._tokens = None
            if self._tokens is not None:
                self._tokens.add(rows)

    def finish(self) -> tuple[NDArray[np.int32], Vocabulary | None, KeptTexts]:
        """Return tokens int32 (N, length), their vocabulary, and the texts; without words int32 (N, 0) and None."""
        texts = self._texts.finish()
        if not self._numbering:
            return np.empty((len(texts), 0), np.int32), None, texts
        vocabulary = Vocabulary(self._words.most_frequent(), self._length)
        if self._tokens is not None and len(self._words) <= MAX_WORDS:
            return self._tokens.array(), vocabulary, texts
        _LOG.info("There are more than %s different words; the most frequent ones stay.", f"{MAX_WORDS:,}")
        tokens, told = empty((len(texts), self._length), np.int32), progress("Encoding", len(texts), "texts")
        for start in range(0, len(texts), _BLOCK):
            part = slice(start, start + _BLOCK)
            tokens[part] = vocabulary.encode(texts[part].tolist())
            told(start)
        return tokens, vocabulary, texts


class _Words:
    """Numbers and counts of words: of twice as many as a vocabulary holds, and those of a block of texts, at most.

    Where there are more after a block, all that may have occurred as seldom as the rarer half are forgotten. None of
    these has occurred more often than `lowest`, so a word that comes (back) has been missed as often at most. Each word
    that occurs more often than `lowest` is therefore counted, too low by `lowest` at most.

    Attributes:
        lowest: Largest possible count of a word that was forgotten; 0 if none was.

    References:
        Manku and Motwani 2002, Approximate frequency counts over data streams, section 4.2 (lossy counting); here
        memory decides when to forget, not a given error.
    """

    def __init__(self) -> None:
        self.lowest = 0
        self._numbers: dict[str, int] = {word: number for number, word in enumerate(SPECIAL)}
        self._counts = np.zeros(2 * MAX_WORDS + _BLOCK, np.int64)
        self._missed = np.zeros_like(self._counts)  # at most so many occurrences of each word were not counted

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, texts: Sequence[str], length: int) -> NDArray[np.int32]:
        """Count the first words of each text, and return their numbers, int32 (n, length); until some are forgotten."""
        numbers, before = self._numbers, len(self._numbers)
        rows = np.full((len(texts), length), PAD, np.int32)
        for row, text in zip(rows, texts, strict=True):
            found = [numbers.setdefault(word, len(numbers)) for word in islice(words_of(text), length)]
            row[: len(found)] = found
        if len(numbers) > len(self._counts):
            self._counts = np.append(self._counts, np.zeros(len(numbers), np.int64))
            self._missed = np.append(self._missed, np.zeros(len(numbers), np.int64))
        self._missed[before : len(numbers)] = self.lowest
        counts = np.bincount(rows.ravel(), minlength=len(SPECIAL))
        self._counts[: len(counts)] += counts
        if len(numbers) > 2 * MAX_WORDS:
            self._forget()
        return rows

    def most_frequent(self) -> tuple[str, ...]:
        """Return the words of a vocabulary: the most frequent ones, of equals the first, in order of appearance."""
        words = list(self._numbers)
        order = np.argsort(-self._counts[len(SPECIAL) : len(words)], kind="stable")[: MAX_WORDS - len(SPECIAL)]
        return SPECIAL + tuple(words[place + len(SPECIAL)] for place in np.sort(order).tolist())

    def _forget(self) -> None:
        """Forget the rarer half and all others that may have occurred as seldom; number the rest anew."""
        words, size = list(self._numbers), len(self._numbers)
        most = self._counts[:size] + self._missed[:size]
        self.lowest = int(np.partition(most[len(SPECIAL) :], -MAX_WORDS)[-MAX_WORDS])
        kept = np.append(np.arange(len(SPECIAL)), np.flatnonzero(most[len(SPECIAL) :] > self.lowest) + len(SPECIAL))
        self._numbers = {words[place]: number for number, place in enumerate(kept.tolist())}
        for values in (self._counts, self._missed):
            values[: len(kept)] = values[kept]
            values[len(kept) :] = 0


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    left = iter(texts)
    while some := list(islice(left, _BLOCK)):
        yield some
