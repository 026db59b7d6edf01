"""A folder as `optimum-cli export onnx` writes it: the graph, the names of its classes, and what comes before it.

Neither transformers nor torch is imported, and no weights but ONNX are read: `pytorch_model.bin` is a pickle, which can
run any code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from importing.errors import AmbiguousModelError, UnsafeFileError, UnsupportedModelError
from importing.examples import Wanted
from importing.texts import Texts

_MAX_DOCUMENT = 2**24
_MAX_TOKENIZER = 2**25
_LONGEST = 512
_MAX_CLASSES = 100_000
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
_EXPORT = "Export it to ONNX first: optimum-cli export onnx --model {folder} --task {task} EXPORTED"


@dataclass(frozen=True)
class Export:
    """What an import needs of a folder.

    Attributes:
        model: The ONNX file.
        labels: Names of the classes in the order of the scores; None where `config.json` has none.
        texts: The tokenizer and its length; None for other models than texts.
        image: How images enter the graph, its name empty; None for other models.
        notes: What differs from the folder's own preprocessing.
    """

    model: Path
    labels: tuple[str, ...] | None = None
    texts: Texts | None = None
    image: Wanted | None = None
    notes: tuple[str, ...] = ()


def read_export(folder: Path, *, max_length: int | None = None, several: bool = False) -> Export:
    """Read a folder of a text or image classifier.

    Args:
        folder: The folder, with `model.onnx` or `onnx/model.onnx`.
        max_length: Tokens per text; None for what the folder says, at most 512.
        several: Whether the rows have several labels each.

    Raises:
        UnsafeFileError: The folder has pickled weights and no ONNX file.
        UnsupportedModelError: The folder has no ONNX file, another number of labels per example, or a file that cannot
            be read.
        AmbiguousModelError: The folder has several ONNX files, none of them `model.onnx`.
    """
    config = _document(folder / "config.json")
    expected = "multi_label_classification" if several else "single_label_classification"
    if config.get("problem_type") not in (None, expected):
        raise UnsupportedModelError(
            f"the model does not choose {'labels independently' if several else 'one class per example'}",
            where=str(folder / "config.json"),
            found=str(config["problem_type"])[:100],
            expected=expected,
            remedy="Give the column of the true class: --label."
            if several
            else "Give a column per label, 1 or 0: --label-columns toxic,threat,insult.",
        )
    model, labels = _model(folder), _labels(config, folder / "config.json")
    tokenizer = folder / "tokenizer.json"
    if tokenizer.is_file():
        length = max_length or _length(config, _document(folder / "tokenizer_config.json"))
        return Export(model, labels, Texts(_content(tokenizer, _MAX_TOKENIZER), length))
    if (folder / "preprocessor_config.json").is_file():
        image, notes = _image(_document(folder / "preprocessor_config.json"), folder / "preprocessor_config.json")
        return Export(model, labels, image=image, notes=notes)
    if any((folder / name).is_file() for name in ("vocab.txt", "vocab.json", "spiece.model", "tokenizer_config.json")):
        raise UnsupportedModelError(
            "the folder has a tokenizer, but no tokenizer.json",
            where=str(folder),
            remedy="Write one with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        )
    return Export(model, labels)


def _model(folder: Path) -> Path:
    places = (folder, folder / "onnx")
    for place in places:
        if (place / "model.onnx").is_file():
            return place / "model.onnx"
    found = sorted(file for place in places for file in place.glob("*.onnx"))
    if len(found) == 1:
        return found[0]
    if found:
        raise AmbiguousModelError(
            "the folder has several ONNX files",
            where=str(folder),
            found=", ".join(file.name for file in found[:10]),
            expected="model.onnx; or import one file with candor import onnx FILE --tokenizer tokenizer.json",
        )
    task = "image-classification" if (folder / "preprocessor_config.json").is_file() else "text-classification"
    remedy = _EXPORT.format(folder=folder, task=task)
    if pickled := sorted(file.name for pattern in _PICKLES for file in folder.glob(pattern)):
        raise UnsafeFileError(
            "reading these weights could run code: they are a pickle",
            where=str(folder),
            found=", ".join(pickled[:5]),
            expected="model.onnx",
            remedy=remedy,
        )
    weights = sorted(file.name for file in folder.glob("*.safetensors"))
    raise UnsupportedModelError(
        "the folder has weights without a graph" if weights else "the folder has no ONNX file",
        where=str(folder),
        found=", ".join(weights[:5]) or "no model.onnx and no onnx/model.onnx",
        expected="model.onnx",
        remedy=remedy,
    )


def _labels(config: dict[str, Any], path: Path) -> tuple[str, ...] | None:
    named = config.get("id2label")
    if named is None:
        return None
    if isinstance(named, dict) and 2 <= len(named) <= _MAX_CLASSES:
        given = [named.get(str(number)) for number in range(len(named))]
        labels = tuple(label for label in given if isinstance(label, str) and label)
        if len(set(labels)) == len(named):
            return labels
    raise UnsupportedModelError(
        "`id2label` does not name the classes",
        where=str(path),
        found=str(named)[:200],
        expected='distinct names by number, from "0"',
    )


def _length(config: dict[str, Any], tokenizer: dict[str, Any]) -> int:
    """Return the smallest of the lengths that the folder names and 512; absent ones may be 10³⁰ there."""
    given = (tokenizer.get("model_max_length"), config.get("max_position_embeddings"), _LONGEST)
    return int(min(length for length in given if isinstance(length, int | float) and length >= 1))


def _image(config: dict[str, Any], path: Path) -> tuple[Wanted, tuple[str, ...]]:
    try:
        cropped = bool(config.get("do_center_crop"))
        size = config.get("crop_size") if cropped else config.get("size")
        scale = float(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else 1.0
        normal = bool(config.get("do_normalize", "image_mean" in config))
        image = Wanted(
            scale=scale,
            mean=tuple(map(float, config["image_mean"])) if normal else (),
            deviation=tuple(map(float, config["image_std"])) if normal else (),
            size=_sides(size),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnsupportedModelError(
            "cannot read how images enter the model", where=str(path), found=repr(error)[:200]
        ) from error
    differs = cropped or (isinstance(size, dict) and "shortest_edge" in size)
    note = "images are resized as a whole: the folder's own preprocessing cuts out their middle"
    return image, (note,) if differs else ()


def _sides(size: Any) -> tuple[int, int] | None:
    if size is None:
        return None
    if isinstance(size, dict):
        edge = size.get("shortest_edge")
        return (int(size["height"]), int(size["width"])) if edge is None else (int(edge), int(edge))
    return int(size), int(size)


def _document(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty without the file."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(_content(path, _MAX_DOCUMENT))
    except (ValueError, RecursionError) as error:
        raise UnsupportedModelError("the file is not valid JSON", where=str(path), found=str(error)[:200]) from error
    if not isinstance(found, dict):
        raise UnsupportedModelError("the file has the wrong form", where=str(path), expected="a JSON object")
    return found


def _content(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UnsupportedModelError("the file is too large", where=str(path), expected=f"at most {most} bytes")
    return content
