"""Tokens of texts that are read block by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundle.text import SPECIAL, UNKNOWN
from training import scratch
from training.data import tokens
from training.kept_texts import GrowingTexts

TEXTS = ["a b c", "", "d a b", "a b b", "e a f", "c a b"]


def read(texts: Iterable[str], length: int) -> tuple[list[list[int]], tuple[str, ...]]:
    """Return tokens and words of texts."""
    content = tokens.TextsAndTokens(length)
    content.add(texts)
    found, vocabulary, kept = content.finish()
    np.testing.assert_array_equal(vocabulary.encode(kept.tolist()), found)
    return found.tolist(), vocabulary.words[len(SPECIAL) :]


def limit(monkeypatch: pytest.MonkeyPatch, words: int, block: int) -> None:
    monkeypatch.setattr(tokens, "MAX_WORDS", words)
    monkeypatch.setattr("bundle.text.MAX_WORDS", words)
    monkeypatch.setattr(tokens, "_BLOCK", block)


@pytest.mark.parametrize("block", [1, 2, 1024])
def test_words_are_numbered_as_they_appear_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(tokens, "_BLOCK", block)
    found, words = read(iter(TEXTS), 3)
    assert words == tuple("abcdef")
    assert found == [[2, 3, 4], [0, 0, 0], [5, 2, 3], [2, 3, 3], [6, 2, 7], [4, 2, 3]]


@pytest.mark.parametrize("large", [0, scratch.LARGE])
def test_the_most_frequent_words_stay_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(scratch, "LARGE", large)
    limit(monkeypatch, words=5, block=1024)
    found, words = read(TEXTS, 3)
    assert words == tuple("abc"), "each at least twice"
    assert found == [[2, 3, 4], [0, 0, 0], [UNKNOWN, 2, 3], [2, 3, 3], [UNKNOWN, 2, UNKNOWN], [4, 2, 3]]


@pytest.mark.parametrize("seed", range(5))
def test_no_frequent_word_is_forgotten(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The bound of the class `_Words`, on words as frequent as in a language whose topics change."""
    limit(monkeypatch, words=100, block=8)
    draw = np.random.default_rng(seed)
    topics = draw.permutation(np.repeat(np.arange(4), 500)) if seed % 2 else np.repeat(np.arange(4), 500)
    texts = [" ".join(f"w{number + 37 * topic}" for number in draw.zipf(1.3, 6) % 5000) for topic in topics]
    counter = tokens._Words()
    for start in range(0, len(texts), 8):
        counter.numbers(texts[start : start + 8], 6)
        assert len(counter) <= 2 * 100
    counts = Counter(word for text in texts for word in text.split())
    assert 0 < counter.lowest < 100
    held = dict(zip(counter._numbers, counter._counts, strict=False))
    for word, count in counts.items():
        if count > counter.lowest:
            assert 0 <= count - held[word] <= counter.lowest
    found, words = read(texts, 6)
    assert set(words) >= {word for word, count in counts.most_common(20)}
    assert (np.array(found) != 0).all()


@given(st.lists(st.text(st.characters(), max_size=8), max_size=20))
def test_kept_texts_come_back(texts: list[str]) -> None:
    growing = GrowingTexts()
    growing.add(texts[:3])
    growing.add(texts[3:])
    kept = growing.finish()
    assert kept.tolist() == texts
    assert len(kept) == len(texts)
    rows = np.arange(len(texts))[::-2]
    assert kept[rows].tolist() == texts[::-2]
    assert kept[1:4].tolist() == texts[1:4]
