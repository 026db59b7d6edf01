"""Tokens of texts that are read block by block."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundle.text import UNKNOWN
from training import scratch
from training.data import tokens
from training.kept_texts import GrowingTexts

TEXTS = ["a b c", "", "d a b", "a b b", "e a f", "c a b"]


@pytest.mark.parametrize("block", [1, 2, 1024])
def test_words_are_numbered_as_they_appear_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(tokens, "_BLOCK", block)
    found, vocabulary = tokens.tokens_of(iter(TEXTS), 3)
    assert vocabulary.words[2:] == tuple("abcdef")
    assert found.tolist() == [[2, 3, 4], [0, 0, 0], [5, 2, 3], [2, 3, 3], [6, 2, 7], [4, 2, 3]]


@pytest.mark.parametrize("large", [0, scratch.LARGE])
def test_the_most_frequent_words_stay_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(scratch, "LARGE", large)
    monkeypatch.setattr(tokens, "MAX_WORDS", 5)
    monkeypatch.setattr("bundle.text.MAX_WORDS", 5)
    found, vocabulary = tokens.tokens_of(TEXTS, 3)
    assert vocabulary.words[2:] == tuple("abc"), "each at least twice"
    assert found.tolist() == [[2, 3, 4], [0, 0, 0], [UNKNOWN, 2, 3], [2, 3, 3], [UNKNOWN, 2, UNKNOWN], [4, 2, 3]]


def test_frequent_words_survive_many_rare_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_WORDS", 50)
    monkeypatch.setattr("bundle.text.MAX_WORDS", 50)
    monkeypatch.setattr(tokens, "_BLOCK", 16)
    draw = np.random.default_rng(0)
    texts = [f"rare{row} often{draw.integers(20)} rare{row}b often{draw.integers(20)}" for row in range(2000)]
    found, vocabulary = tokens.tokens_of(texts, 4)
    words = Counter(word for text in texts for word in text.split())
    counts = np.bincount(found.ravel())
    for word in (f"often{number}" for number in range(20)):
        lost = words[word] - counts[vocabulary.words.index(word)]
        assert 0 <= lost <= 1, "only where it was as rare as the others, before they were forgotten for the first time"
    assert len(vocabulary) == 50


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
