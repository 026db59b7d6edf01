"""Texts become tokens, and the vocabulary travels with its model."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import bundle
from bundle import Vocabulary
from bundle.text import PAD, SPECIAL, UNKNOWN, words_of

TEXTS = ["the cat and the dog", "a dog; THE Dog!", "zebra ant"]
WEIGHTS = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)


def token_model(length: int) -> bytes:
    """The mean of one row of weights for each token."""
    nodes = [
        helper.make_node("Gather", ["weights", "input"], ["rows"]),
        helper.make_node("ReduceMean", ["rows", "axis"], ["logits"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "words",
        [helper.make_tensor_value_info("input", TensorProto.INT32, ["N", length])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(WEIGHTS, "weights"), numpy_helper.from_array(np.array([1]), "axis")],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
    return bytes(model.SerializeToString())


@pytest.fixture
def text_contents(contents: bundle.BundleContents) -> bundle.BundleContents:
    vocabulary = Vocabulary.count(TEXTS, size=9, length=4)
    inputs = vocabulary.encode(["The dog, the cat, the zebra", "mouse"])
    golden = bundle.Golden(
        inputs,
        WEIGHTS[inputs].mean(axis=1),
        texts=(bundle.EncodedText("THE dog — the cat", 0), bundle.EncodedText("größer", 1)),
    )
    spec = bundle.InputSpec(kind="tokens", dtype="int32", shape=(4,))
    return replace(contents, input=spec, model_bytes=token_model(4), golden=golden, vocabulary=vocabulary)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  ,;-_ \n", []),
        ("Don't PANIC: it's 42_000 km.", ["don't", "panic", "it's", "42", "000", "km"]),
        ("'quoted' rock'n'roll'", ["quoted", "rock'n'roll"]),
        ("GRÖSSE Grösse gro\u0308sse", ["grösse", "grösse", "grösse"]),
        ("mail@example.org", ["mail", "example", "org"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert list(words_of(text)) == words


@given(st.text())
def test_a_word_is_a_word_again(text: str) -> None:
    words = list(words_of(text))
    assert list(words_of(" ".join(words))) == words


def test_the_most_frequent_words_come_first_and_ties_are_alphabetical() -> None:
    vocabulary = Vocabulary.count(TEXTS, size=7, length=100)
    assert vocabulary.words == (*SPECIAL, "dog", "the", "a", "and", "ant")
    assert len(vocabulary) == 7


def test_words_beyond_the_length_are_not_counted() -> None:
    assert Vocabulary.count(["one two three", "three three"], size=9, length=2).words == (
        *SPECIAL, "three", "one", "two",
    )  # fmt: skip
    assert "three" not in Vocabulary.count(["one two three"], size=9, length=2).words


def test_encoding_pads_cuts_and_marks_unknown_words() -> None:
    vocabulary = Vocabulary((*SPECIAL, "dog", "the"), 3)
    encoded = vocabulary.encode(["the", "dog the mouse dog", ""])
    assert encoded.dtype == np.int32
    dog, the = 2, 3
    assert encoded.tolist() == [[the, PAD, PAD], [dog, the, UNKNOWN], [PAD] * 3]
    assert vocabulary.encode([]).shape == (0, 3)
    assert vocabulary.decode(encoded[1]) == "dog the"
    assert vocabulary.shown(encoded[1]) == "dog the <unknown>"
    assert vocabulary.shown(vocabulary.encode(["a mouse"])[0]) is None


@given(st.lists(st.text(), max_size=5), st.integers(2, 10), st.integers(1, 6))
def test_tokens_are_in_bounds_and_the_vocabulary_round_trips(texts: list[str], size: int, length: int) -> None:
    vocabulary = Vocabulary.count(texts, size=size, length=length)
    encoded = vocabulary.encode(texts)
    assert encoded.shape == (len(texts), length)
    assert len(vocabulary) <= size
    assert ((encoded >= 0) & (encoded < len(vocabulary))).all()
    assert Vocabulary.load(vocabulary.dump()) == vocabulary


def test_the_bundle_keeps_the_vocabulary(tmp_path: Path, text_contents: bundle.BundleContents) -> None:
    read = bundle.verify(bundle.write(tmp_path, text_contents))
    assert read.vocabulary == text_contents.vocabulary
    assert read.vocabulary is not None
    assert read.golden.texts == text_contents.golden.texts
    assert read.golden.encoded == ()
    assert read.manifest.files["vocabulary.json"] == hashlib.sha256(read.vocabulary.dump()).hexdigest()


def test_a_bundle_without_one_still_reads(written: Path) -> None:
    read = bundle.verify(written)
    assert read.vocabulary is None
    assert "vocabulary.json" not in read.manifest.files


def test_an_altered_vocabulary_is_damage(tmp_path: Path, text_contents: bundle.BundleContents) -> None:
    file = bundle.write(tmp_path, text_contents) / "vocabulary.json"
    file.write_bytes(file.read_bytes().replace(b"dog", b"fox"))
    with pytest.raises(bundle.BundleDamagedError) as caught:
        bundle.verify(file.parent)
    assert caught.value.file == "vocabulary.json"


def test_contents_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path: Path, contents: bundle.BundleContents, text_contents: bundle.BundleContents
) -> None:
    words = ("a", "and", "ant", "dog", "the", "zebra", "cat")
    bad: list[tuple[bundle.BundleContents, dict[str, Any]]] = [
        (contents, {"vocabulary": text_contents.vocabulary}),  # a model of images
        (contents, {"golden": replace(contents.golden, texts=(bundle.EncodedText("the", 0),))}),
        (text_contents, {"vocabulary": None}),  # the golden texts need one
        (text_contents, {"vocabulary": Vocabulary((*SPECIAL, *words), 5)}),  # another length
        (text_contents, {"vocabulary": Vocabulary((*SPECIAL, *words), 4)}),  # other tokens for the golden texts
        (text_contents, {"vocabulary": Vocabulary(SPECIAL, 4)}),  # golden tokens outside
        (text_contents, {"golden": replace(text_contents.golden, texts=(bundle.EncodedText("mouse", 0),))}),
        (text_contents, {"golden": replace(text_contents.golden, texts=(bundle.EncodedText("mouse", 2),))}),
    ]
    for whole, change in bad:
        with pytest.raises(bundle.BundleFormatError):
            bundle.write(tmp_path / "root", replace(whole, **change))
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"tokeniser": "bytes"},
        {"length": 0},
        {"length": "4"},
        {"length": 10**9},
        {"words": "the"},
        {"words": ["<pad>"]},
        {"words": ["the", "dog"]},
        {"words": ["<pad>", "<unknown>", "dog", "dog"]},
        {"words": ["<pad>", "<unknown>", "Dog"]},
        {"words": ["<pad>", "<unknown>", "two words"]},
        {"words": ["<pad>", "<unknown>", ""]},
        {"words": ["<pad>", "<unknown>", 7]},
        {"extra": 1},
    ],
)
def test_other_documents_are_no_vocabulary(change: dict[str, object]) -> None:
    document = json.loads(Vocabulary.count(TEXTS, size=9, length=4).dump()) | change
    with pytest.raises(bundle.BundleFormatError) as caught:
        Vocabulary.load(json.dumps(document).encode())
    assert caught.value.file == "vocabulary.json"


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[]", b"{}", b"[" * 100_000])
def test_other_bytes_are_no_vocabulary(data: bytes) -> None:
    with pytest.raises(bundle.BundleFormatError):
        Vocabulary.load(data)
