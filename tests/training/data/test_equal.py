"""Equal rows of your own data: found, told, and in one part."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bundle import LabelledLogits
from training import ConfigurationError, TrainConfig
from training.calibrate import calibrate
from training.data import split
from training.data.equal import equal_rows

ROWS, AGAIN = 200, 80


def table(folder: Path) -> dict[str, Any]:
    lines = [f"{one:.3f},{other:.3f},{int(one > 0)}" for one, other in np.random.default_rng(0).normal(size=(ROWS, 2))]
    (folder / "rows.csv").write_text("\n".join(["x,y,label", *lines, *lines[:AGAIN]]))
    return {"dataset": "table", "data_settings": {"file": str(folder / "rows.csv"), "label": "label"}}


def texts(folder: Path) -> dict[str, Any]:
    lines = [f"word{row} {'good' if row % 3 else 'bad'},{row % 3 > 0}" for row in range(ROWS)]
    (folder / "texts.csv").write_text("\n".join(["body,label", *lines, *lines[:AGAIN]]))
    settings = {"file": str(folder / "texts.csv"), "text": "body", "label": "label"}
    return {"dataset": "texts", "data_settings": settings}


def text_folder(folder: Path) -> dict[str, Any]:
    for row in range(ROWS + AGAIN):
        path = folder / str(row % 2) / f"{row}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"word{row % ROWS}")
    return {"dataset": "text_folder", "data_settings": {"folder": str(folder)}}


def pixels() -> Any:
    images = np.random.default_rng(0).integers(0, 256, (ROWS, 4, 4, 3), np.uint8)
    return np.concatenate([images, images[:AGAIN]])


def arrays(folder: Path) -> dict[str, Any]:
    np.savez(folder / "images.npz", images=pixels(), labels=np.arange(ROWS + AGAIN) % 2)
    return {"dataset": "arrays", "data_settings": {"file": str(folder / "images.npz")}}


def image_folder(folder: Path) -> dict[str, Any]:
    for row, image in enumerate(pixels()):
        path = folder / str(row % 2) / f"{row}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(path)
    return {"dataset": "image_folder", "data_settings": {"folder": str(folder)}}


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("make", [table, texts, text_folder, arrays, image_folder])
def test_no_two_parts_share_equal_rows(
    make: Any, stratified: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sizes: dict[str, Any] = {"reference_rows": 60, "validation_rows": 30, "test_rows": 40, "stratified": stratified}
    data, parts = TrainConfig(**make(tmp_path), **sizes).load()
    assert data.equal is not None
    found = [set(data.equal[part].tolist()) for part in astuple(parts)]
    assert sum(map(len, found)) == ROWS
    assert len(parts.reference()) == pytest.approx(60, abs=3)
    assert f"{AGAIN} rows repeat the inputs of an earlier row. Equal rows stay in one part." in caplog.text


def test_rows_that_all_differ_are_cut_as_ever_and_groups_decide(tmp_path: Path) -> None:
    settings = table(tmp_path)
    path = tmp_path / "rows.csv"
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, *lines[:ROWS]]))
    assert TrainConfig(**settings).read().equal is None
    path.write_text("\n".join([f"id,{head}", *(f"{row},{line}" for row, line in enumerate(lines))]))
    settings["data_settings"] |= {"group": "id"}
    assert TrainConfig(**settings).read().equal is None


def test_equal_numbers_are_equal_rows() -> None:
    rows = np.array([[0.0, np.nan], [-0.0, -np.nan], [np.nan, 0.0]], np.float32)
    numbers = equal_rows(rows, np.array([0, 1, 0]))
    assert numbers is not None
    assert numbers[0] == numbers[1] != numbers[2]


def test_too_few_different_rows_are_refused() -> None:
    asked: dict[str, Any] = {"train_rows": 40, "reference_rows": 40, "fit_share": 0.5, "certify_share": 0.4, "seed": 0}
    with pytest.raises(ConfigurationError, match="equal rows are one group"):
        split(np.zeros(100, np.int64), equal=np.arange(100) % 3, **asked)


def test_the_calibrator_keeps_equal_rows_in_one_fold() -> None:
    rng = np.random.default_rng(0)
    logits = np.repeat(rng.normal(0, 3, (60, 3)), 5, axis=0).astype(np.float32)
    labels, equal = np.repeat(rng.integers(0, 3, 60), 5), np.repeat(np.arange(60), 5)
    rows, grouped = LabelledLogits(logits, labels), LabelledLogits(logits, labels, group=equal)
    fitted, apart, wanted = (calibrate("auto", *given) for given in ((rows, equal), (rows,), (grouped,)))
    assert fitted.to_dict() == wanted.to_dict() != apart.to_dict()
