"""An import holds a part of large rows at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bundle import Graph, GraphOutput
from importing import build
from importing.columns import describe
from importing.examples import make_examples
from importing.model import OnnxModel
from importing.rows import read_rows
from importing.split import SHARES, split
from tests.memory import most_traced

from . import graphs

SIDE, ROWS = 64, 300


@pytest.mark.parametrize("kind", ["images", "stored", "compressed"])
def test_images_and_arrays_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 2, (ROWS, SIDE, SIDE, 3)).astype(np.uint8) * 255
    names = np.array(["cat", "dog"] * (ROWS // 2))
    path, label = tmp_path / "rows", None
    if kind == "images":
        for place, (name, image) in enumerate(zip(names, pixels, strict=True)):
            (path / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path / name / f"{place:03}.png", compress_level=0)
        order = np.argsort(names, kind="stable")
    else:
        path, label, order = tmp_path / "rows.npz", "y", np.arange(ROWS)
        save = np.savez if kind == "stored" else np.savez_compressed
        save(path, pixels=np.moveaxis(pixels / np.float32(255), -1, 1), y=names)
    model = OnnxModel(graphs.photographs(SIDE, SIDE), "photographs.onnx")
    monkeypatch.setattr(build, "_CHUNK_BYTES", SIDE * SIDE * 3 * 10)

    def score() -> np.ndarray:
        rows = read_rows(path, label=label)
        describe(rows)
        split(rows, SHARES, seed=0)
        examples = make_examples(rows, model.inputs)
        graph = Graph(inputs=examples.inputs, output=GraphOutput(name="scores", form="logits"))
        return build.score(graph, model.run, examples.values, rows, 2, lambda _: None)

    expected = (pixels[order] / 255).mean(axis=(1, 2)) @ graphs.WEIGHTS
    np.testing.assert_allclose(score(), expected, atol=1e-4)
    assert most_traced(score) < pixels.nbytes / 2
