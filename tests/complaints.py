"""A small classifier of texts as `optimum-cli export onnx` writes one: ids and mask, any batch and any length."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

LABELS = ("complaint", "praise", "question")
SENTENCES = {
    "complaint": ("The bill is wrong again", "Nobody answers my letters", "The parcel came late and broken"),
    "praise": ("Thank you for the quick help", "Great service, well done", "The new app works very well"),
    "question": ("When does the office open?", "How do I change my address?", "Which card should I order?"),
}
LENGTH = 16


def tokenizer_json(kind: str = "WordPiece") -> bytes:
    """Return the file of a tokenizer trained on the sentences, padding and truncation not set."""
    return _trained(kind)


@cache
def _trained(kind: str) -> bytes:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    sentences = [sentence for group in SENTENCES.values() for sentence in group]
    if kind == "WordPiece":
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer(lowercase=True)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=150, special_tokens=special, show_progress=False)
    else:
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=300, special_tokens=special, show_progress=False, initial_alphabet=alphabet
        )
    made.train_from_iterator(sentences, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, made.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return made.to_str(pretty=True).encode()


def tokenizer(kind: str = "WordPiece") -> Tokenizer:
    """Return the tokenizer itself."""
    return Tokenizer.from_str(tokenizer_json(kind).decode())


def by_hand(texts: Sequence[str], length: int = LENGTH, kind: str = "WordPiece") -> dict[str, np.ndarray]:
    """Return ids and mask of texts as the library alone makes them."""
    made = tokenizer(kind)
    made.enable_truncation(length)
    made.enable_padding(length=length, pad_id=made.token_to_id("[PAD]"), pad_token="[PAD]")
    encoded = [made.encode(text) for text in texts]
    ids = np.array([each.ids for each in encoded], np.int64)
    return {"input_ids": ids, "attention_mask": np.array([each.attention_mask for each in encoded], np.int64)}


def classifier(length: int | str = "length", *, counting: bool = False) -> bytes:
    """Return the ONNX file: the masked mean of an embedding, then a linear layer.

    Args:
        length: Tokens per text; a name for any number.
        counting: Whether padding counts in the mean, as it should not.
    """
    made = tokenizer()
    random = np.random.default_rng(7)
    embedding = random.normal(0, 0.1, (made.get_vocab_size(), len(LABELS))).astype(np.float32)
    for place, label in enumerate(LABELS):
        for sentence in SENTENCES[label]:
            embedding[made.encode(sentence, add_special_tokens=False).ids, place] += 1
    weights = {
        "embedding": embedding,
        "linear": (np.eye(len(LABELS)) * 3).astype(np.float32),
        "last": np.array([-1]),
        "middle": np.array([1]),
    }
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["embedded"]),
        helper.make_node("Cast", ["attention_mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["kept", "last"], ["column"]),
        helper.make_node("Mul", ["embedded", "column"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "middle"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["column", "middle"], ["count"], keepdims=0),
        helper.make_node("ReduceMean", ["masked", "middle"], ["mean"], keepdims=0)
        if counting
        else helper.make_node("Div", ["sum", "count"], ["mean"]),
        helper.make_node("MatMul", ["mean", "linear"], ["logits"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", length])
        for name in ("input_ids", "attention_mask")
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(LABELS)])]
    initial = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "complaints", inputs, outputs, initial)
    sets = [helper.make_opsetid("", 20)]
    return bytes(helper.make_model(graph, ir_version=10, opset_imports=sets).SerializeToString())


def logits_by_hand(texts: Sequence[str], length: int = LENGTH) -> np.ndarray:
    """Return the logits that tokenizer and ONNX Runtime alone give."""
    logits: np.ndarray = ort.InferenceSession(classifier()).run(["logits"], by_hand(texts, length))[0]
    return logits


def texts(count: int, seed: int = 5) -> tuple[list[str], list[str]]:
    """Return texts drawn from the words of one class, a fifth of them of another, and their labels."""
    random = np.random.default_rng(seed)
    found, labels = [], []
    for _ in range(count):
        label = str(random.choice(LABELS))
        told = label if random.random() > 0.2 else str(random.choice(LABELS))
        words = " ".join(SENTENCES[told]).split()
        found.append(" ".join(random.choice(words, random.integers(3, 30)).tolist()))
        labels.append(label)
    return found, labels


def folder(path: Path, **config: Any) -> Path:
    """Write a folder as `optimum-cli export onnx` leaves one."""
    path.mkdir(parents=True)
    (path / "model.onnx").write_bytes(classifier())
    (path / "tokenizer.json").write_bytes(tokenizer_json())
    named = {"id2label": {str(number): label for number, label in enumerate(LABELS)}}
    (path / "config.json").write_text(
        json.dumps({"model_type": "bert", "max_position_embeddings": 64, **named, **config})
    )
    (path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": LENGTH, "pad_token": "[PAD]"}))
    return path
