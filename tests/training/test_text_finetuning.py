"""Transformers that classify texts: their own tokenizer and weights, a new head, and a bundle that takes texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import bundle
from tests import complaints
from training import ConfigurationError, TrainConfig, candor_train, train_bundle
from training.calibrate import calibrate_bundle
from training.data import DATASETS, DataOptions
from training.data import load as load_data
from training.inputs import TextShape
from training.models import pretrained
from training.models.pretrained import fine_tuned
from training.tokenized import as_pairs, tokenizer_of
from training.trained import learn, load

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries themselves
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
COLUMNS = {"file": "texts.csv", "text": "body", "label": "kind"}
LETTERS = ["", "The bill is wrong", "When does the office open? " * 20, "Well done, 你好"]


def saved(path: Path, kind: str, **more: Any) -> Path:
    """Write a tiny transformer with random weights as transformers saves it, and a tokenizer of 16 tokens a text."""
    transformers = pretrained._imported("transformers")
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    words = complaints.tokenizer().get_vocab_size()
    config = transformers.BertConfig(vocab_size=words, max_position_embeddings=32, **SIZES, **more)
    getattr(transformers, kind)(config).save_pretrained(path)
    (path / "tokenizer.json").write_bytes(complaints.tokenizer_json())
    (path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": complaints.LENGTH}))
    return path


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that was trained to fill in words: it lacks a head and a pooler."""
    return saved(tmp_path_factory.mktemp("hf") / "language", "BertForMaskedLM")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, language: Path) -> TrainConfig:
    folder = tmp_path_factory.mktemp("rows")
    texts, labels = complaints.texts(240)
    lines = [f'"{text}",{label},{1 + row % 3}' for row, (text, label) in enumerate(zip(texts, labels, strict=True))]
    (folder / "texts.csv").write_text("body,kind,weight\n" + "\n".join(lines) + "\n")
    return TrainConfig(
        dataset="texts",
        data=folder,
        data_settings=COLUMNS,
        model=f"hf:{language}",
        train_rows=100,
        reference_rows=100,
        epochs=4,
        batch_size=16,
        learning_rate=0.01,
    )


def by_transformers(network: Any, texts: list[str]) -> torch.Tensor:
    """What the network itself gives for texts, padded to the full length by the tokenizer alone."""
    inputs = {name: torch.from_numpy(values) for name, values in complaints.by_hand(texts).items()}
    with torch.no_grad():
        found = network.eval()(**inputs)
    return torch.as_tensor(found.logits if hasattr(found, "logits") else found.last_hidden_state)


def shape() -> TextShape:
    tokenizer = complaints.tokenizer()
    return TextShape(tokenizer.get_vocab_size(), complaints.LENGTH, tokenizer.token_to_id("[PAD]"))


def test_the_encoder_is_as_published_and_the_head_is_new(language: Path) -> None:
    module = fine_tuned(f"hf:{language}", shape(), complaints.LABELS)
    network = module[1].network
    theirs = pretrained._imported("transformers").BertModel.from_pretrained(language, add_pooling_layer=False)
    expected = by_transformers(theirs, LETTERS)
    torch.testing.assert_close(by_transformers(network.bert, LETTERS), expected)
    assert module[1].head == {
        f"{layer}.{part}" for layer in ("classifier", "bert.pooler.dense") for part in ("weight", "bias")
    }


def test_padding_changes_nothing(language: Path) -> None:
    """Columns that are padding in every row are left out of training; the logits stay those of the full length."""
    module = fine_tuned(f"hf:{language}", shape(), complaints.LABELS).eval()
    tokenizer = tokenizer_of(f"hf:{language}")
    for texts in (LETTERS, LETTERS[:2], LETTERS[:1]):
        pairs = torch.from_numpy(as_pairs(tokenizer.encode(texts)))
        longest = max(len(complaints.tokenizer().encode(text).ids) for text in texts)
        assert module[0](pairs)[0].shape == (len(texts), min(longest, complaints.LENGTH))
        with torch.no_grad():
            torch.testing.assert_close(module(pairs), by_transformers(module[1].network, texts))


def test_a_head_of_the_same_classes_stays(tmp_path: Path) -> None:
    named = dict(enumerate(reversed(complaints.LABELS)))
    folder = saved(tmp_path / "classifier", "BertForSequenceClassification", id2label=named)
    theirs = pretrained._imported("transformers").BertForSequenceClassification.from_pretrained(folder)
    network = fine_tuned(f"hf:{folder}", shape(), complaints.LABELS)[1].network
    torch.testing.assert_close(by_transformers(network, LETTERS), by_transformers(theirs, LETTERS).flip(1))


def test_texts_in_a_file_become_a_bundle_that_takes_texts(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.trained.check_network", lambda *_: None)  # another test exports twice
    weighed = replace(
        config, data_settings={**COLUMNS, "weight": "weight"}, frozen_epochs=1, layer_decay=0.9, epochs=16
    )
    made = bundle.verify(train_bundle(replace(weighed, epochs=16), tmp_path, weights=tmp_path / "weights.npz"))
    assert made.manifest.source == "trained"
    assert made.manifest.labels == complaints.LABELS
    assert made.tokenizer is not None
    assert made.tokenizer.dump() == complaints.tokenizer_json()
    assert made.reference.fit.weight is not None
    texts = [example.text for example in made.golden.texts]
    assert len(texts) > 3
    given = [*texts, *LETTERS]
    session = onnxruntime.InferenceSession(made.model_bytes)
    logits = session.run(["logits"], complaints.by_hand(given))[0]
    np.testing.assert_allclose(made.golden.logits, logits[: len(texts)], rtol=1e-4, atol=1e-4)
    graph = made.manifest.graph
    assert graph is not None
    assert graph.mask == "attention_mask"
    np.testing.assert_allclose(graph.run(session.run, made.tokenizer.encode(given), 3), logits, rtol=1e-4, atol=1e-4)
    again = bundle.verify(calibrate_bundle(made.path, "identity"))
    assert again.manifest.files["tokenizer.json"] == made.manifest.files["tokenizer.json"]
    held_out = made.reference.certify
    assert np.mean(held_out.logits.argmax(axis=1) == held_out.labels) > 0.4  # a third by chance
    kept = load(tmp_path / "weights.npz", config.data)
    np.testing.assert_allclose(kept.scored(kept.parts.certify).logits, held_out.logits, rtol=1e-4, atol=1e-4)


def test_texts_in_memory(config: TrainConfig, tmp_path: Path) -> None:
    texts, names = complaints.texts(120)
    labels = [complaints.LABELS.index(name) for name in names]
    path = candor_train(
        config.model,
        (texts[:60], labels[:60]),
        reference=(texts[60:], labels[60:]),
        label_names=complaints.LABELS,
        out=tmp_path,
        name="letters",
        epochs=1,
        max_length=8,
        allow_poor=True,
    )
    made = bundle.verify(path)
    assert {each.shape for each in made.manifest.input.tensors} == {(8,)}


def test_formats_and_folders_give_the_same_texts(config: TrainConfig, tmp_path: Path) -> None:
    """Lines of CSV, NDJSON and Parquet, and files in folders, become the same ids."""
    core, parquet = pytest.importorskip("arro3.core"), pytest.importorskip("arro3.io")
    rows = [("The bill", "complaint"), ("Thank you", "praise"), ("007", "praise")]
    lines = "".join(f"{text},{kind}\n" for text, kind in rows)
    (tmp_path / "texts.csv").write_text("body,kind\n" + lines)
    (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps({"body": text, "kind": kind}) for text, kind in rows))
    columns = {"body": core.Array([text for text, _ in rows], type=core.DataType.string())}
    columns["kind"] = core.Array([kind for _, kind in rows], type=core.DataType.string())
    parquet.write_parquet(core.RecordBatch.from_pydict(columns), tmp_path / "texts.parquet")
    for number, (text, kind) in enumerate(rows):
        (tmp_path / "folders" / kind).mkdir(parents=True, exist_ok=True)
        (tmp_path / "folders" / kind / f"{number}.txt").write_text(text)
    expected = complaints.by_hand([text for text, _ in rows])["input_ids"]
    for settings in ({"file": "texts.csv"}, {"file": "texts.jsonl"}, {"file": "texts.parquet"}, None):
        told = {"folder": "folders"} if settings is None else {**COLUMNS, **settings}
        dataset = "text_folder" if settings is None else "texts"
        data = replace(config, dataset=dataset, data=tmp_path, data_settings=told).read()
        np.testing.assert_array_equal(data.inputs[:, 0], expected)
        unread = DATASETS[dataset](tmp_path, **told, words=False)
        assert unread.inputs.shape == (len(rows), 0)
        assert unread.vocabulary is None
        assert data.label_names == ("complaint", "praise")
    (tmp_path / "authors.csv").write_text("body,kind,author\na,praise,x\nb,complaint,y\nc,praise,y\n")
    settings = {**COLUMNS, "file": "authors.csv", "group": "author"}
    grouped = replace(config, dataset="texts", data=tmp_path, data_settings=settings).read()
    assert grouped.groups is not None
    assert grouped.groups.tolist() == [0, 1, 1]
    words = replace(config, model="text_cnn", data=tmp_path).read()
    assert words.vocabulary is not None
    assert words.vocabulary.decode(words.inputs[0]) == "the bill"


def test_an_interrupted_run_goes_on_to_the_same_result(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.trained.check_network", lambda *_: None)
    keep, seen = tmp_path / "checkpoint.pt", []

    def interrupt(epoch: Any) -> None:
        seen.append(epoch.number)
        if seen == [1, 2]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(config, keep=keep, on_epoch=interrupt)
    resumed = learn(config, keep=keep, on_epoch=interrupt).module.state_dict()
    straight = learn(config).module.state_dict()
    assert seen == [1, 2, 3, 4]
    assert all(torch.equal(resumed[name], each) for name, each in straight.items())


def test_what_cannot_work_is_refused(config: TrainConfig, language: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (bare / name).write_bytes((language / name).read_bytes())
    untold = tmp_path / "untold"
    untold.mkdir()
    (untold / "config.json").write_text("{}")
    other = saved(tmp_path / "other", "BertModel")
    (other / "tokenizer.json").write_bytes(complaints.tokenizer_json("BPE"))
    hollow = saved(tmp_path / "hollow", "BertModel")
    pretrained._imported("safetensors.torch").save_file({"a": torch.zeros(1)}, hollow / "model.safetensors")

    def trained(**more: Any) -> Callable[[], object]:
        return lambda: learn(replace(config, **more))

    def read(**settings: Any) -> Callable[[], object]:
        return lambda: load_data("texts", DataOptions(config.data, settings={**COLUMNS, **settings}))

    for attempt, why in (
        (trained(model=f"hf:{untold}"), "tokenizer.json cannot be read .* which texts require"),
        (trained(model=f"hf:{bare}"), "no such file, expected weights"),
        (trained(model=f"hf:{other}"), r"has 300 token ids, expected at most 150"),
        (trained(model=f"hf:{hollow}"), "does not contain the weights of BertForSequenceClassification; missing"),
        (trained(max_length=17), "max_length is 17, expected at most 16"),
        (trained(max_length=2), "no room for a text"),
        (trained(image_size=32), "expected none for texts"),
        (trained(mixup=0.2), "mixup: inputs are several tensors"),
        (trained(model="text_cnn", max_length=8), "it belongs to hf:FOLDER"),
        (trained(model="text_cnn", data_settings={**COLUMNS, "words": False}), "words is False, expected true"),
        (trained(model="timm:test_vit"), "requires images"),
        (read(file="none.csv"), r"none\.csv is missing"),
        (read(text="subject"), "subject"),
        (lambda: load_data("texts"), "texts require the settings"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            attempt()


def test_a_tokenizer_without_special_tokens_leaves_something_of_an_empty_text(
    config: TrainConfig, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "plain", "BertForMaskedLM")
    document = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(document | {"post_processor": None}))
    trained = replace(config, model=f"hf:{folder}", epochs=1)
    bundle.verify(train_bundle(trained, tmp_path / "out", allow_poor=True))
