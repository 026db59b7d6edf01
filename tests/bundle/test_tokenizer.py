"""A tokenizer.json of others fills the tensors as its library does, and cannot harm who reads it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bundle import BundleFormatError, Golden, InputSpec, RowError, TensorSpec, Tokenizer, tokenizer
from bundle.golden import EncodedText
from tests import complaints


def spec(*names: str, length: int = complaints.LENGTH, dtype: Any = "int64") -> InputSpec:
    tensors = tuple(TensorSpec(name=name, dtype=dtype, shape=(length,)) for name in names)
    return InputSpec(kind="tensors", dtype="record", tensors=tensors)


BOTH = spec("input_ids", "attention_mask")
FILE = complaints.tokenizer_json()


def changed(change: Callable[[dict[str, Any]], Any], kind: str = "WordPiece") -> bytes:
    document = json.loads(complaints.tokenizer_json(kind))
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize("kind", ["WordPiece", "BPE"])
@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4))
def test_texts_become_the_tensors_that_the_library_makes(kind: str, texts: list[str]) -> None:
    made = READY[kind].encode(texts)
    wanted = complaints.by_hand(texts, kind=kind)
    for name, values in wanted.items():
        assert np.array_equal(made[name], values)


READY = {kind: Tokenizer(complaints.tokenizer_json(kind), BOTH) for kind in ("WordPiece", "BPE")}


def test_of_a_text_without_tokens_one_is_attended() -> None:
    """A tokenizer without special tokens leaves nothing of an empty text."""
    plain = Tokenizer(changed(lambda document: document.update(post_processor=None)), BOTH)
    made = plain.encode(["", "a bill"])
    with_ends = READY["WordPiece"].encode(["a bill"])["attention_mask"].sum()
    assert made["attention_mask"].sum(axis=1).tolist() == [1, with_ends - 2]
    assert plain.decode(made[0]) == ""


def test_the_file_is_kept_byte_for_byte() -> None:
    assert READY["WordPiece"].dump() == FILE
    assert len(READY["WordPiece"]) == complaints.tokenizer().get_vocab_size()


@pytest.mark.parametrize(
    ("names", "dtype", "filled"),
    [
        (("input_ids", "attention_mask", "token_type_ids"), "int64", "im0"),
        (("segment_ids:0", "serving/input_mask:0", "serving/input_ids:0"), "int32", "0mi"),
        (("whatever",), "int32", "i"),
    ],
)
def test_each_tensor_has_a_role_by_its_name(names: tuple[str, ...], dtype: str, filled: str) -> None:
    text = complaints.SENTENCES["praise"][0]
    (row,) = Tokenizer(FILE, spec(*names, dtype=dtype)).encode([text])
    ids, mask = (values[0] for values in complaints.by_hand([text]).values())
    for name, role in zip(names, filled, strict=True):
        assert row[name].dtype == dtype
        assert np.array_equal(row[name], {"i": ids, "m": mask, "0": np.zeros_like(ids)}[role])


def test_the_file_says_on_which_side_texts_are_padded_and_cut() -> None:
    made = complaints.tokenizer()
    made.enable_padding(direction="left", pad_id=3, pad_token="[SEP]", pad_type_id=1)
    made.enable_truncation(100, stride=7, direction="left")
    ready = Tokenizer(made.to_str().encode(), spec("ids", "mask", "type_ids", length=6))
    short, long = ready.encode(["the bill", "the bill is wrong again and late"])
    made.no_padding()
    made.no_truncation()
    assert short["ids"].tolist() == [3, 3, *made.encode("the bill").ids]
    assert short["mask"].tolist() == [0, 0, 1, 1, 1, 1]
    assert short["type_ids"].tolist() == [1, 1, 0, 0, 0, 0]
    assert long["ids"].tolist() == [2, *made.encode("the bill is wrong again and late").ids[-5:-1], 3]


def test_golden_texts_must_encode_to_their_inputs() -> None:
    ready, texts = READY["WordPiece"], complaints.SENTENCES["praise"][:2]
    rows = ready.encode(texts)
    logits = np.zeros((2, 3), np.float32)
    ready.check_golden(Golden(rows, logits, texts=tuple(EncodedText(text, row) for row, text in enumerate(texts))))
    with pytest.raises(BundleFormatError, match=r"golden\.npz: a golden text does not encode"):
        ready.check_golden(Golden(rows, logits, texts=(EncodedText(texts[0], 1),)))


def test_one_thread_encodes() -> None:
    ready = READY["WordPiece"]
    before = set(Path("/proc/self/task").iterdir())
    ready.encode(["the bill is wrong"] * 2000)
    assert set(Path("/proc/self/task").iterdir()) <= before  # threads of other tests may end meanwhile
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (spec("input_ids", "position_ids"), "does not fill this tensor"),
        (spec("input_ids", "tokens"), "do not have one role each"),
        (spec("mask", "attention_mask"), "do not have one role each"),
        (spec("input_ids", dtype="float32"), "token ids are whole numbers"),
        (spec("input_ids", dtype="string"), "numeric vectors of one length"),
        (spec("input_ids", length=2), "no room for a text"),
        (spec("input_ids", dtype="int8"), "ids do not fit the tensor"),
        (InputSpec(kind="tokens", dtype="int32", shape=(16,)), "numeric vectors of one length"),
        (
            InputSpec(
                kind="tensors",
                dtype="record",
                tensors=(TensorSpec(name="ids", dtype="int64", shape=(4, 4)),),
            ),
            "numeric vectors of one length",
        ),
    ],
)
def test_tensors_that_no_text_fills_are_refused(given: InputSpec, message: str) -> None:
    with pytest.raises(BundleFormatError, match=message):
        Tokenizer(FILE, given)


def doubled(pattern: dict[str, str], content: str, times: int) -> dict[str, Any]:
    part = {"type": "Replace", "pattern": pattern, "content": content}
    return {"type": "Sequence", "normalizers": [part] * times}


def nested(depth: int) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "Lowercase"}
    for _ in range(depth):
        part = {"type": "Sequence", "normalizers": [part]}
    return part


def added(count: int, length: int) -> list[dict[str, Any]]:
    sides = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return [{"id": 1000 + number, "content": f"<{number}>" + "x" * length, **sides} for number in range(count)]


charsmap = base64.b64encode((4).to_bytes(4, "little") + b"\0\0\0\0" + b"x" * 2000).decode()
bpe = {"type": "BPE", "vocab": {"a": 0, "bb": 1, "[PAD]": 2}, "merges": [["bb", "bb"]]}
template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}], "pair": []}
UNSAFE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "the model is a number": lambda file: file.update(model=3),
    "no model": lambda file: file.pop("model"),
    "another model": lambda file: file["model"].update(type="Pickle"),
    "a negative id": lambda file: file["model"]["vocab"].update(the=-1),
    "no token for unknown words": lambda file: file["model"].update(unk_token="[NONE]"),
    "the unknown token is missing": lambda file: file.update(
        model={"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0], ["[PAD]", -2.0]]}
    ),
    "an empty vocabulary": lambda file: file.update(
        added_tokens=[], post_processor=None, model={"type": "WordLevel", "vocab": {}, "unk_token": "?"}
    ),
    "no padding token": lambda file: (file["model"]["vocab"].pop("[PAD]"), file["added_tokens"].pop(0)),
    "merges that panic": lambda file: file.update(model=bpe),
    "a template that panics": lambda file: file.update(post_processor={**template, "special_tokens": {}}),
    "pieces of no length": lambda file: file.update(pre_tokenizer={"type": "FixedLength", "length": 0}),
    "a charsmap that panics": lambda file: file.update(
        normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    ),
    "a charsmap of long texts": lambda file: file.update(
        normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap}
    ),
    "a text doubled 60 times": lambda file: file.update(normalizer=doubled({"String": "a"}, "aa", 60)),
    "an empty match doubled 60 times": lambda file: file.update(normalizer=doubled({"Regex": ""}, "a", 60)),
    "an empty text replaced": lambda file: file.update(normalizer=doubled({"String": ""}, "a", 60)),
    "a long replacement": lambda file: file.update(normalizer=doubled({"String": "a"}, "b" * 100_000, 1)),
    "bytes of bytes of bytes": lambda file: file.update(
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}] * 30,
        }
    ),
    "a long prefix": lambda file: file.update(normalizer={"type": "Prepend", "prepend": "x" * 100_000}),
    "an expression without end": lambda file: file.update(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}
    ),
    "a deep normalizer": lambda file: file.update(normalizer=nested(120)),
    "a very deep normalizer": lambda file: file.update(normalizer=nested(300)),
    "words without end": lambda file: file["model"].update(max_input_chars_per_word=10**9),
    "words of infinite length": lambda file: file["model"].update(max_input_chars_per_word=float("inf")),
    "a prefix of words without end": lambda file: file["model"].update(continuing_subword_prefix="#" * 2000),
    "added tokens without end": lambda file: file.update(added_tokens=added(50, 50_000)),
    "added tokens that are numbers": lambda file: file.update(added_tokens=[1, 2]),
    "an added token without a text": lambda file: file.update(added_tokens=[{"id": 1}]),
    "a pattern that is a number": lambda file: file.update(normalizer=doubled(3, "a", 1)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", UNSAFE)
def test_a_file_that_could_harm_is_refused(name: str) -> None:
    with pytest.raises(BundleFormatError) as caught:
        Tokenizer(changed(UNSAFE[name]), BOTH)
    assert caught.value.file == "tokenizer.json"
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b"{", b"\xff", b'{"model": 1', b"[" * 100_000, b'{"model": {"a": 1, "a": 2}}', b" " * 2**26],
    ids=["empty", "null", "list", "cut", "not UTF-8", "cut later", "deep", "duplicate key", "large"],
)
def test_what_is_not_a_tokenizer_is_refused(data: bytes) -> None:
    with pytest.raises(BundleFormatError, match=r"tokenizer\.json: "):
        Tokenizer(data, BOTH)


def test_a_file_is_used_that_real_models_have() -> None:
    """Growth of the normalizers of T5, XLM-RoBERTa and DeBERTa: a charsmap, spaces and a prefix."""
    parts = [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
        {"type": "NFKD"},
        {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
        {"type": "Prepend", "prepend": "▁"},
    ]
    Tokenizer(changed(lambda file: file.update(normalizer={"type": "Sequence", "normalizers": parts})), BOTH)


def test_a_text_that_fails_is_refused_by_the_reason() -> None:
    with pytest.raises(RowError, match="too long"):
        READY["BPE"].encode(["x" * (tokenizer.MAX_CHARACTERS + 1)])
    with pytest.raises(RowError, match="cannot encode"):
        READY["BPE"].encode(["\ud800"])
    slow = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    ready = Tokenizer(changed(lambda file: file.update(pre_tokenizer=slow)), BOTH)
    with pytest.raises(RowError, match="retry-limit"):  # a panic of the library
        ready.encode(["a" * 40 + "b"])
    assert ready.encode(["fine"]).shape == (1,)


def test_the_library_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(BundleFormatError, match=r"requirements/install\.py text"):
        Tokenizer(FILE, BOTH)
