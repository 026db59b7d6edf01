"""One small model of each kind that people bring, with the answers of the library that made it."""

from __future__ import annotations

import json
import os
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import onnxruntime as ort
import pandas as pd
import skops.io
import torch
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

from bundle.images import encode_png
from tests import complaints

EXPORTED = Path(__file__).parent / "exported"
ROWS = 300  # that validate; as many are sent to the service
NUMBERS = ["amount", "hour", "age"]
RANDOM = np.random.default_rng(31)


@dataclass(frozen=True, eq=False)
class Brought:
    """A model, the command that imports it, and rows that it has not seen.

    Attributes:
        command: Arguments of `candor import`, without name, calibrator and folder.
        inputs: What clients send, JSON of N rows.
        answers: Probabilities (N, K) of the model's own library.
        labels: Names of the N true classes.
    """

    command: list[str]
    inputs: list[Any]
    answers: np.ndarray
    labels: list[str]


def trees_and_pipelines(folder: Path) -> Iterator[tuple[str, Brought]]:
    """Boosted trees of three libraries, with ZipMap and without, and a pipeline that reads texts."""
    frame = pd.DataFrame(RANDOM.normal(size=(3 * ROWS, 3)) * [30, 6, 10], columns=NUMBERS).astype(np.float32)
    frame["country"] = RANDOM.choice(["at", "de", "fr"], len(frame)).astype(object)
    score = frame["amount"] / 30 + frame["hour"] / 6 + (frame["country"] == "fr") + RANDOM.normal(size=len(frame))
    fraud = (score > 0).to_numpy().astype(int)
    seen, sent = frame[:ROWS], frame[2 * ROWS :]
    rows = folder / "payments.csv"
    frame.assign(fraud=fraud)[ROWS : 2 * ROWS].to_csv(rows, index=False)
    numbers = sent[NUMBERS].to_numpy()

    def brought(kind: str, file: Path, answers: np.ndarray, *options: str, columns: list[str] = NUMBERS) -> Brought:
        command = [kind, str(file), "--validation", str(rows), "--label", "fraud", "--labels", "0=genuine,1=fraud"]
        labels = np.array(["genuine", "fraud"])[fraud[2 * ROWS :]]
        return Brought([*command, *options], sent[columns].to_dict("records"), answers, labels.tolist())

    unnamed = ("--drop", "country")
    positive: dict[str, Any] = {
        "lightgbm": lightgbm.Booster(model_file=EXPORTED / "lightgbm.txt").predict(numbers, num_threads=1),
        "xgboost": xgboost.Booster(model_file=EXPORTED / "xgboost.json").inplace_predict(numbers),
    }
    for library, suffix in (("lightgbm", "txt"), ("xgboost", "json")):
        answers = np.stack([1 - positive[library], positive[library]], axis=1)
        native = EXPORTED / f"{library}.{suffix}"
        yield library, brought(library, native, answers, *unnamed)
        for form in ("maps", "tensor"):
            graph, options = EXPORTED / f"{library}_{form}.onnx", ("--native", str(native), *unnamed)
            yield f"{library}_{form}", brought("onnx", graph, answers, *options)
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    boosted = catboost.CatBoostClassifier(iterations=8, depth=3, **quiet).fit(seen[NUMBERS], fraud[:ROWS])
    boosted.save_model(str(folder / "model.cbm"))
    yield "catboost", brought("catboost", folder / "model.cbm", boosted.predict_proba(sent[NUMBERS]))
    pipeline = make_pipeline(
        make_column_transformer((StandardScaler(), NUMBERS), (OneHotEncoder(handle_unknown="ignore"), ["country"])),
        LogisticRegression(),
    ).fit(seen, fraud[:ROWS])
    skops.io.dump(pipeline, folder / "model.skops")
    yield "sklearn", brought("sklearn", folder / "model.skops", pipeline.predict_proba(sent), columns=[*frame])


def drawn(answers: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return a class of each row, drawn from its probabilities."""
    return [str(RANDOM.choice(names, p=row / row.sum())) for row in answers]


def answers_of(network: nn.Module, *inputs: np.ndarray) -> np.ndarray:
    """Return what PyTorch answers."""
    with torch.inference_mode():
        probabilities: np.ndarray = network(*map(torch.from_numpy, inputs)).softmax(dim=1).numpy()
    return probabilities.astype(np.float64)


def export(network: nn.Module, file: Path, **inputs: np.ndarray) -> None:
    """Write a network of PyTorch with a batch of any size, by the exporter that takes a tenth of the other's time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            network,
            tuple(torch.from_numpy(values[:2]) for values in inputs.values()),
            file,
            input_names=[*inputs],
            output_names=["logits"],
            dynamic_axes={name: {0: "batch"} for name in inputs},
            dynamo=False,
        )


def convolution(folder: Path) -> Brought:
    """A convolution of PyTorch over floats with their channels first; clients send images."""
    torch.manual_seed(4)
    pooled = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.BatchNorm1d(4)]
    network = nn.Sequential(*pooled, nn.Linear(4, 3))
    images = RANDOM.integers(0, 256, (2 * ROWS, 8, 8, 3)).astype(np.uint8)
    pixels = images.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    network(torch.from_numpy(pixels))  # for the statistics of the batch norm
    answers = answers_of(network.eval(), pixels)
    export(network, folder / "network.onnx", pixels=pixels)
    names = drawn(answers, ["cat", "dog", "fox"])
    for row, name in enumerate(names[:ROWS]):
        (folder / "images" / name).mkdir(parents=True, exist_ok=True)
        (folder / "images" / name / f"{row}.png").write_bytes(encode_png(images[row]))
    command = ["onnx", str(folder / "network.onnx"), "--validation", str(folder / "images")]
    return Brought(command, images[ROWS:].tolist(), answers[ROWS:], names[ROWS:])


class Attention(nn.Module):
    """Embeddings with places, one layer of masked attention, the first token's answer: BERT with all sizes small."""

    def __init__(self, tokens: int, width: int = 8) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(tokens, width), nn.Embedding(complaints.LENGTH, width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, len(complaints.LABELS))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        states = self.words(input_ids) + self.places.weight
        scores = self.query(states) @ self.key(states).transpose(1, 2) / 8**0.5
        kept = scores.masked_fill(attention_mask[:, None, :] == 0, -1e9).softmax(dim=2)
        logits: torch.Tensor = self.last(self.norm(states + kept @ self.value(states))[:, 0])
        return logits


def transformer(folder: Path) -> Brought:
    """Ids and a mask, in the folder that optimum leaves; clients send texts."""
    torch.manual_seed(4)
    network = Attention(complaints.tokenizer().get_vocab_size()).eval()
    saved = complaints.folder(folder / "export")
    texts = complaints.texts(2 * ROWS)[0]
    inputs = complaints.by_hand(texts)
    answers = answers_of(network, *inputs.values())
    export(network, saved / "model.onnx", **inputs)
    names = drawn(answers, complaints.LABELS)
    pd.DataFrame({"body": texts, "kind": names})[:ROWS].to_csv(folder / "texts.csv", index=False)
    command = ["huggingface", str(saved), "--validation", str(folder / "texts.csv"), "--label", "kind"]
    return Brought(command, texts[ROWS:], answers[ROWS:], names[ROWS:])


def file_types(folder: Path, package: Path) -> Brought:
    """The published model of magika: int32 (N, 2048) of bytes in, 214 probabilities out; files of this machine."""
    (model,) = package.glob("models/standard_v*")
    config = json.loads((model / "config.min.json").read_text())
    endings = {"python": ".py", "pythonbytecode": ".pyc", "elf": ".so"}
    kinds, files = zip(*((kind, file) for kind, ending in endings.items() for file in found(ending)), strict=True)
    order = RANDOM.permutation(len(files))
    rows = np.stack([beginning_and_end(files[at], config) for at in order])
    names = np.array(kinds)[order]
    half = len(rows) // 2
    (answers,) = ort.InferenceSession(model / "model.onnx").run(None, {"bytes": rows[half:]})
    assert np.mean(np.array(config["target_labels_space"])[answers.argmax(axis=1)] == names[half:]) > 0.8
    np.savez(folder / "files.npz", bytes=rows[:half], kind=names[:half])
    command = ["onnx", str(model / "model.onnx"), "--validation", str(folder / "files.npz"), "--label", "kind"]
    command += ["--labels", ",".join(config["target_labels_space"])]
    return Brought(command, [{"bytes": row} for row in rows[half:].tolist()], answers, names[half:].tolist())


def found(ending: str) -> list[Path]:
    """Return files of at least as many bytes as the model reads."""
    places = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
    large = (file for place in places for file in in_order(place, ending) if file.stat().st_size > 5_000)
    return list(islice(large, 60))


def in_order(folder: Path, ending: str) -> Iterator[Path]:
    """Yield the files of a folder, then of those in it: a sorted list of all would take seconds."""
    for place, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(place, name) for name in sorted(files) if name.endswith(ending))


def beginning_and_end(file: Path, config: dict[str, int]) -> np.ndarray:
    """Return what the model reads of a file: the bytes at both ends, without white space."""
    content, size = file.read_bytes(), config["block_size"]
    first = content[:size].lstrip()[: config["beg_size"]]
    last = content[-size:].rstrip()[-config["end_size"] :]
    row = np.full(config["beg_size"] + config["end_size"], config["padding_token"], np.int32)
    row[: len(first)] = list(first)
    row[len(row) - len(last) :] = list(last)
    return row
