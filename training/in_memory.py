"""Training on arrays in memory, from Python."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bundle.table import Column, Columns
from training.config import TrainConfig, choose
from training.data import Dataset, Splits, split, split_held_out
from training.data.equal import equal_rows, equal_texts
from training.data.sizes import sizes
from training.data.tokens import TextsAndTokens
from training.epochs import OnEpoch
from training.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import nn

    from training.losses import Loss

Examples = tuple[Any, ArrayLike]
_PARTS = ("train", "validation", "reference", "test")


def candor_train(
    model: str | nn.Module | Callable[..., nn.Module],
    train: Examples,
    validation: Examples | None = None,
    *,
    out: Path | str,
    name: str,
    loss: str | Loss = "cross_entropy",
    reference: Examples | None = None,
    test: Examples | None = None,
    label_names: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    length: int = 1000,
    keep: Path | str | None = None,
    on_epoch: OnEpoch | None = None,
    allow_poor: bool = False,
    **settings: Any,
) -> Path:
    """Train a network on arrays, calibrate it on held-out rows, and write it as a bundle.

    Each part is a pair of inputs and labels. Inputs are images uint8 (N, H, W, C) or (N, H, W), rows of a table
    float32 (N, F) with NaN for missing numbers, a data frame of numbers, or N texts. Labels are numbers of classes,
    (N,).

    Args:
        model: A name as in `TrainConfig.model`, a factory `make(classes, shape)` (`training.own`), or a module from
            preprocessed inputs to logits, which is trained in place.
        train: Rows to learn from.
        validation: Rows to evaluate on after each epoch, and for early stopping.
        out: Folder of bundles.
        name: Name of the model in the bundle.
        loss: A name as in `TrainConfig.loss`, or a function of logits and labels.
        reference: Held-out rows for calibration and certificates. None cuts `reference_rows` rows from `train`.
        test: Rows to report on.
        label_names: Names of the classes; their numbers if None.
        columns: Names of a table's columns; if None, those of the data frame, or `c1`, `c2` ….
        length: Words to read from a text.
        keep: Checkpoint file, as of `train_bundle`.
        on_epoch: Called after every epoch.
        allow_poor: Whether to write a model that has collapsed, or whose calibrator is at its bound.
        **settings: Other fields of `TrainConfig`, such as `epochs` or `coefficients`.

    Returns:
        The bundle's folder, `<out>/<name>/<version>`.

    Raises:
        ConfigurationError: A setting is invalid, inputs or labels do not fit, most reference or test rows are training
            rows, or the network or loss fails a check.
        DivergedError: The loss became NaN or infinite.
        ExportError: The exported graph differs from the network.
        bundle.BundleError, OSError: The bundle could not be written.
    """
    from torch import nn

    from training.pipeline import run
    from training.trained import Given

    fixed = {"dataset", "data", "data_settings", "rows", "test_rows", "train_rows", "validation_rows"} & settings.keys()
    if fixed:
        raise ConfigurationError(f"{min(fixed)} does not apply to arrays, expected the rows themselves")
    for each in settings:
        choose("setting", {field.name: field for field in fields(TrainConfig)}, each)
    told: dict[str, Any] = {"model": _told(model), "loss": _told(loss)}
    config = TrainConfig(dataset="arrays_in_memory", name=name, **told, **settings)
    given = {"train": train, "validation": validation, "reference": reference, "test": test}
    data, bounds = _joined(
        {part: rows for part, rows in given.items() if rows is not None}, label_names, columns, length
    )
    data = config.encoded(replace(data, equal=_equal(data, bounds)))
    parts = _parts(data, bounds, config)
    factory = (lambda *_: model) if isinstance(model, nn.Module) else model
    return run(
        config,
        Path(out),
        given=Given(
            data.learned_from(parts.train),
            parts,
            None if isinstance(factory, str) else factory,
            None if isinstance(loss, str) else loss,
        ),
        keep=None if keep is None else Path(keep),
        on_epoch=on_epoch,
        allow_poor=allow_poor,
    )


def _told(thing: object) -> str:
    """Return a name for the record: the one given, or that of the function or class."""
    if isinstance(thing, str):
        return thing
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}:{kind.__qualname__}"


def _joined(
    parts: dict[str, Examples], label_names: Sequence[str] | None, columns: Sequence[str] | None, length: int
) -> tuple[Dataset, dict[str, range]]:
    """Return all parts as one data set, and the rows of each."""
    bounds, start = {}, 0
    for part, (given, of_part) in parts.items():
        count = len(np.atleast_1d(np.asarray(of_part)))
        if len(given) != count:
            raise ConfigurationError(f"{part}: {len(given)} inputs for {count} labels, expected as many of both")
        if not count:
            raise ConfigurationError(f"{part} has no rows")
        bounds[part] = range(start, start := start + count)
    labels = np.concatenate([_labels(part, rows) for part, (_, rows) in parts.items()])
    names = tuple(label_names or map(str, range(int(labels.max()) + 1 if len(labels) else 0)))
    sources: dict[str, str] = {}
    more: dict[str, Any] = {}
    frame = _columns_of(parts["train"][0])
    if frame is None and isinstance(next((text for text in parts["train"][0] if text is not None), None), str):
        for part, (given, _) in parts.items():
            for row, text in enumerate(given):
                if not isinstance(text, str):
                    raise ConfigurationError(f"{part}, row {row} is {text!r}, expected a text as in other rows")
        content = TextsAndTokens(length)
        content.add([str(text) for given, _ in parts.values() for text in given])
        inputs, more["vocabulary"], more["texts"] = content.finish()
        more |= {"kind": "tokens", "vocabulary_size": 20_000}
    else:
        arrays = [_array(part, given, frame) for part, (given, _) in parts.items()]
        if len({array.shape[1:] for array in arrays}) > 1:
            raise ConfigurationError(f"inputs have the shapes {', '.join(str(each.shape) for each in arrays)}")
        inputs = np.concatenate(arrays)
        if inputs.dtype == np.uint8 and inputs.ndim == 3:
            inputs = inputs[..., np.newaxis]
        if inputs.ndim == 4 and inputs.shape[3] not in (1, 3):
            raise ConfigurationError(
                f"images are {inputs.shape}, expected (N, height, width, channels), 1 or 3 channels"
            )
        if inputs.dtype.kind == "f" and inputs.ndim == 2:
            with np.errstate(over="ignore"):
                inputs = inputs.astype(np.float32)
            given_names = columns or frame or [f"c{place + 1}" for place in range(inputs.shape[1])]
            for row, column in np.argwhere(np.isinf(inputs))[:1]:
                part = next(part for part, rows in bounds.items() if row in rows)
                raise ConfigurationError(
                    f"{part}, row {row - bounds[part].start}, column {given_names[column]}: infinite as float32, "
                    "expected a finite number, or NaN for a missing one"
                )
            more |= {"kind": "array", "columns": Columns(tuple(Column(each, None) for each in given_names))}
    for part, rows in bounds.items():
        told = hashlib.sha256(f"{inputs.dtype}{inputs.shape[1:]}".encode())
        told.update(np.ascontiguousarray(inputs[rows.start : rows.stop]).data)
        told.update(labels[rows.start : rows.stop].data)
        sources[part] = told.hexdigest()
    _refuse_training_rows(inputs, bounds)
    test = bounds.get("test", range(0))
    return Dataset("arrays_in_memory", inputs, labels, names, test=test, sources=sources, **more), bounds


def _columns_of(given: object) -> list[str] | None:
    """Return the names of a data frame's columns; None for anything else."""
    names = getattr(given, "columns", None)
    return None if names is None else [str(name) for name in names]


def _array(part: str, given: Any, frame: list[str] | None) -> NDArray[Any]:
    """Return the inputs of a part; those of a data frame as float32."""
    if (names := _columns_of(given)) != frame:
        raise ConfigurationError(f"{part} has the columns {names}, expected those of train: {frame}")
    if frame is None:
        return np.asarray(given)
    try:
        return np.stack([np.asarray(given[name], np.float32) for name in given.columns], axis=1)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{part} has a column that is not of numbers: {error}. Give categories as numbers, or train from a file "
            "with the data set `table`"
        ) from error


def _refuse_training_rows(inputs: NDArray[Any], bounds: dict[str, range]) -> None:
    """Raise ConfigurationError if most rows of a part that judges the model are training rows, exactly equal."""

    def distinct(part: str) -> set[bytes]:
        return {hashlib.blake2b(inputs[row].tobytes(), digest_size=16).digest() for row in bounds.get(part, ())}

    learned = distinct("train")
    for part in ("reference", "test"):
        shared = len(distinct(part) & learned)
        if 2 * shared > len(bounds.get(part, ())):
            raise ConfigurationError(
                f"{part}: {shared} of {len(bounds[part])} rows are training rows, expected rows that training never saw"
            )


def _labels(part: str, labels: ArrayLike) -> NDArray[np.int64]:
    found = np.asarray(labels)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ConfigurationError(
            f"labels of {part} are {found.dtype} {found.shape}, expected numbers of classes, whole numbers (N,)"
        )
    return found.astype(np.int64)


def _equal(data: Dataset, bounds: dict[str, range]) -> NDArray[np.int64] | None:
    """Return the number of each row's inputs among the rows that are cut into parts; None if these all differ."""
    own = np.array(bounds.get("reference", bounds["train"]))
    if data.texts is None:
        found = equal_rows(data.array[own], data.labels[own])
    else:
        found = equal_texts(data.texts[own], data.labels[own])
    if found is None:
        return None
    numbers = np.zeros(len(data), np.int64)
    numbers[own] = found
    return numbers


def _parts(data: Dataset, bounds: dict[str, range], config: TrainConfig) -> Splits:
    shares: dict[str, Any] = {"fit_share": config.fit_share, "certify_share": config.certify_share, "seed": config.seed}
    rows = {part: np.arange(each.start, each.stop, dtype=np.int64) for part, each in bounds.items()}
    none = np.empty(0, np.int64)
    held_out = {"validation": rows.get("validation", none), "test": rows.get("test", none), "feedback": none}
    if "reference" not in rows:
        own = data.labels[rows["train"]]
        wanted = sizes(data, 0, 0, config.reference_rows, config.certify_share).reference
        shares["equal"] = None if data.equal is None else data.equal[rows["train"]]
        cut = split(own, train_rows=None, reference_rows=wanted, stratified=config.stratified, **shares)
        return replace(cut, **held_out)
    reference = rows["reference"]
    shares["equal"] = None if data.equal is None else data.equal[reference]
    cut = split_held_out(data.labels[reference], reference_rows=len(reference), stratified=config.stratified, **shares)
    three = {part: reference[getattr(cut, part)] for part in ("fit", "certify", "gate")}
    return Splits(train=rows["train"], **three, **held_out)
