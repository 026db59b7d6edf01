"""Import a graph: report the rows, find inputs and output, score, check; `finish` does the rest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bundle import Columns, Golden, Graph, NativeCheck
from bundle.graph import feed_all
from calibrators import softmax
from importing.build import GOLDEN_ROWS, Scored, chunk_rows, score
from importing.class_order import class_order
from importing.columns import describe, print_report
from importing.converted import Converted
from importing.converters import CONVERTERS
from importing.converters.files import readable
from importing.documents import read_json
from importing.errors import (
    ImportRefusedError,
    ModelReferenceError,
    NativeDifferenceError,
    RowsError,
    UnsupportedModelError,
)
from importing.examples import Examples, Wanted, make_examples, text_columns
from importing.finish import Options, Source, finish, record_of
from importing.huggingface import Export, read_export
from importing.labels import CLASSES, KEYS, check_rows, finish_labels, of_each_label, places_of, subset
from importing.model import Model, OnnxModel
from importing.native import compare
from importing.outputs import choose_output, choose_sigmoids, clipped, described
from importing.printable import printable
from importing.references import SUFFIXES
from importing.rows import Rows
from importing.split import split
from importing.texts import Texts, text_examples, without_padding

_PROBED = 512
_RANDOM = (
    b"RandomNormal",
    b"RandomNormalLike",
    b"RandomUniform",
    b"RandomUniformLike",
    b"Bernoulli",
    b"Multinomial",
    b"Dropout",
)
_EXPORTERS = {
    ".keras": ("a model of Keras", 'model.export("model.onnx", format="onnx")'),
    ".h5": ("a model of Keras", 'model.export("model.onnx", format="onnx")'),
    ".tflite": ("a model of TensorFlow Lite", "python -m tf2onnx.convert --tflite model.tflite --output model.onnx"),
    ".pb": ("a model of TensorFlow", "python -m tf2onnx.convert --saved-model FOLDER --output model.onnx"),
    ".pt2": ("a program of torch.export", "torch.onnx.export(model, …, dynamo=True) on the model itself"),
    ".safetensors": ("weights without a model", "optimum-cli export onnx, then candor import huggingface"),
}
"""What an ending of another format shows, and what exports such a model to ONNX."""
_FORMATS = {ending: name for name, endings in SUFFIXES.items() if name in CONVERTERS for ending in endings}


def import_model_file(
    path: Path,
    file_format: str,
    read: Callable[..., Rows],
    options: Options,
    console: Console,
    *,
    order: Sequence[str] | None,
    categories: Path | None,
    inputs: Sequence[str],
    output: str | None,
    native: Path | None,
    refuse_unknown: bool,
    tokenizer: Path | None,
    text: str | None,
    max_length: int | None,
    sha256: str | None,
    beside: Mapping[str, str],
) -> None:
    """Import an ONNX file, a folder that optimum exported, or a file of a library that a converter reads.

    `read` is `read_rows` without what the model says, see `import_graph`. `sha256` is the digest that the
    model's file must have, None for any; `beside` has the digests of the documents beside it.

    Raises:
        ImportRefusedError: The model or the rows cannot be used; nothing was written.
    """
    export = _export(path, file_format, tokenizer, max_length, several=bool(options.label_columns))
    if export.texts is None and (text is not None or max_length is not None):
        raise UnsupportedModelError(
            f"--{'max-length' if text is None else 'text'} belongs to models of texts",
            found=f"{file_format}, without a tokenizer",
            expected="--tokenizer, or a text model's folder of optimum",
        )
    readable(export.model, file_format if file_format in CONVERTERS else "ONNX")
    with export.model.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 not in (None, found):
        raise ModelReferenceError(
            "the model's file differs from its pinned digest", where=export.model.name, found=found, expected=sha256
        )
    converted = _converted(file_format, path) if file_format in CONVERTERS else None
    compared = converted if native is None else _converted(_format_of(native), native)
    if native is not None and compared is not None and compared.complete is not None:
        raise UnsupportedModelError(
            "--native cannot compare a CatBoost model with categories: its file does not say their codes in the graph",
            where=str(native),
            remedy="Import the file itself, which compares the answers: candor import catboost model.cbm.",
        )
    import_graph(
        OnnxModel(export.model.read_bytes() if converted is None else converted.model, str(export.model)),
        read,
        options,
        console,
        source=Source(file_format, path.name, found, beside),
        converted=converted,
        native=compared,
        order=order,
        categories=categories,
        inputs=inputs,
        output=output,
        refuse_unknown=refuse_unknown,
        export=export,
        text=text,
    )


def import_graph(
    model: Model,
    read: Callable[..., Rows],
    options: Options,
    console: Console,
    *,
    source: Source,
    converted: Converted | None,
    native: Converted | None,
    order: Sequence[str] | None = None,
    categories: Path | None = None,
    inputs: Sequence[str] = (),
    output: str | None = None,
    refuse_unknown: bool = False,
    export: Export | None = None,
    text: str | None = None,
) -> Path | None:
    """Import a graph: one that came as it is, one that a converter made, or one on a server.

    Args:
        model: The graph.
        read: Reads the rows, given `text`, `columns`, `categories`, `literal` and `named`, as `read_rows` takes them.
        options: The options of every import.
        console: Where the steps are printed.
        source: Where the model comes from.
        converted: The conversion that made the graph; None for a graph as it came.
        native: What answers the same rows, to compare with; None for no comparison.
        order: Names of the columns in the order of the graph's only input.
        categories: File of known values by column.
        inputs: What the user says of inputs.
        output: What the user says of the output.
        refuse_unknown: Whether rows with unknown categories are refused later.
        export: What came beside the graph, such as a tokenizer; None for nothing.
        text: Column of the texts, where the rows have more inputs.

    Returns:
        The bundle's folder; None for a dry run.

    Raises:
        ImportRefusedError: The model or the rows cannot be used; nothing was written.
    """
    export = export or Export(Path(source.name))
    given = {} if categories is None else read_json(categories, "categories", dict)
    if given and converted is not None and converted.columns is not None and converted.complete is None:
        raise UnsupportedModelError(
            "--categories belongs to graphs that came as ONNX, to models of arrays, and to categories of CatBoost",
            found=str(categories),
            expected="no --categories: the model names its columns and knows its categories",
        )
    rows, columns, native = _read(model, read, export, given, converted, native, order, text)
    known = given if columns is None else _known(columns)
    own = export.labels if converted is None else converted.labels
    several = options.label_columns
    keys: tuple[str, ...] = KEYS
    labels: tuple[str, ...] = CLASSES
    if several:
        if converted is not None:
            raise UnsupportedModelError("--label-columns belongs to graphs in ONNX", found=source.format)
        columns_of_labels, scored_labels = places_of(several, own)
        options.check(labels)
        of_each_label(options, several)
        check_rows(rows, options, console)
    else:
        keys, labels = class_order(
            rows, options.labels, own, allow_reversed=options.allow_reversed, in_python=options.in_python
        )
        options.check(labels)
        print_report(describe(rows, certify=options.shares[1], categories=known), console)
        split(rows, options.shares, seed=options.seed)  # scoring takes long: refuse first
    examples = _examples(
        rows, model, export, inputs, order=order, categories=given, columns=columns, refuse_unknown=refuse_unknown
    )
    if several:
        found, note = choose_sigmoids(model.outputs, _probed(model, examples), columns_of_labels, scored_labels, output)
        graph, scores = Graph(inputs=examples.inputs, output=found, batch=model.batch), 2 * len(several)
    else:
        graph, note = _graph(model, examples, keys, output, converted)
        scores = len(labels)
    graph = without_padding(graph, model.run, examples, model.inputs, scores)
    for line in (*export.notes, *examples.notes, note):
        console.print(escape(printable(line)), soft_wrap=True)
    if graph.batch is not None:
        console.print(f"The graph fixes its batch: it runs {graph.batch} row{'s' * (graph.batch > 1)} at a time.")
    if graph.mask is not None:
        console.print("Padding is left out of each run: the answers stay the same.")
    with progress(console, "scoring", len(rows)) as step:
        logits = score(graph, model.run, examples.values, rows, scores, step)
    _check_alone(graph, model, examples, logits, rows)
    check = None if native is None else _compared(native, graph, examples, logits, rows, console)
    scored = Scored(
        examples.spec,
        examples.values,
        logits,
        model.content,
        model.origin,
        record_of(source, rows, options, check),
        graph,
        columns=examples.columns,
        tokenizer=examples.tokenizer,
        texts=examples.texts,
        trees=None if converted is None else converted.trees,
    )
    if several:
        return _finish_each(scored, graph, columns_of_labels, rows, options, console)
    return finish(scored, rows, keys, labels, options, console)


def _read(
    model: Model,
    read: Callable[..., Rows],
    export: Export,
    given: Mapping[str, Any],
    converted: Converted | None,
    native: Converted | None,
    order: Sequence[str] | None,
    text: str | None,
) -> tuple[Rows, Columns | None, Converted | None]:
    """Return the rows, and the columns and the native model, both completed with the categories in the rows."""
    columns = None if converted is None else converted.columns
    complete = None if converted is None else converted.complete
    if export.texts is not None:
        rows = read(text=None, columns=None if text is None else [text], literal=None)
    else:
        known = given if columns is None else _known(columns)
        rows = read(
            text=text_columns(model.inputs, known),
            columns=order if order is not None or columns is None else [each.name for each in columns.columns],
            categories={name: {*map(str, values)} for name, values in known.items()},
            literal=text_columns(model.inputs, ()) if converted is None else _literal(columns),
            named=[port.name for port in model.inputs],
        )
    if converted is not None and columns is not None and complete is not None:
        columns, answers = complete(columns, _all_texts(rows, _known(columns), given))
        native = replace(converted, native=answers) if native is converted else native
    return rows, columns, native


def _examples(
    rows: Rows,
    model: Model,
    export: Export,
    inputs: Sequence[str],
    *,
    order: Sequence[str] | None,
    categories: Mapping[str, Any],
    columns: Columns | None,
    refuse_unknown: bool,
) -> Examples:
    """Return the rows as the graph's inputs; a tokenizer that came beside the graph encodes texts."""
    if export.texts is not None:
        return text_examples(rows, model.inputs, export.texts)
    wanted = [Wanted.parse(each) for each in inputs]
    if not wanted and rows.files and export.image is not None:
        wanted = [export.image]
    return make_examples(
        rows,
        model.inputs,
        wanted=wanted,
        order=order,
        categories=categories,
        columns=columns,
        refuse_unknown=refuse_unknown,
    )


def _finish_each(
    scored: Scored,
    graph: Graph,
    columns: Sequence[int],
    rows: Rows,
    options: Options,
    console: Console,
) -> Path | None:
    """Finish a multi-label import: for each label a model of two classes, from its column of the output."""

    def of_label(place: int, _: Rows, positions: npt.NDArray[np.int64]) -> Scored:
        output = graph.output.model_copy(update={"columns": (columns[place],)})
        return subset(
            scored,
            positions,
            logits=np.ascontiguousarray(scored.logits[positions, 2 * place : 2 * place + 2]),
            graph=graph.model_copy(update={"output": output}),
        )

    return finish_labels(rows, options, console, of_label)


def _known(columns: Columns) -> dict[str, tuple[str, ...]]:
    """Return the categories by column of those that have some."""
    return {each.name: each.categories for each in columns.columns if each.categories is not None}


def _literal(columns: Columns | None) -> list[str]:
    """Return the columns in which only an empty text is missing: converters know them."""
    return [] if columns is None else [each.name for each in columns.columns if each.literal]


def _all_texts(rows: Rows, known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the categories that the user and the rows name, of the columns that have some."""
    if unknown := sorted(given.keys() - known.keys()):
        raise UnsupportedModelError(
            "--categories names columns without categories", found=", ".join(unknown), expected=", ".join(known)
        )
    return {name: [*map(str, given.get(name, ())), *_texts(rows, name)] for name in known}


def _texts(rows: Rows, name: str) -> list[str]:
    """Return the distinct texts of a column; raises RowsError."""
    if name not in rows.features:
        raise RowsError(f"The rows have no column `{name}`, which the model requires.", where=str(rows.path))
    return [text for text in dict.fromkeys(rows.features[name].tolist()) if text is not None]


@contextmanager
def progress(console: Console, what: str, total: int) -> Iterator[Any]:
    """Show a bar; yields a function of the number of rows done."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def _export(path: Path, file_format: str, tokenizer: Path | None, max_length: int | None, *, several: bool) -> Export:
    """Return what is known of a model before it is opened."""
    if not path.exists():
        raise ModelReferenceError("no such file or folder", where=str(path))
    if file_format == "onnx" and (exporter := _EXPORTERS.get(path.suffix.lower())):
        kind, how = exporter
        raise UnsupportedModelError(
            f"the ending is that of {kind}", where=str(path), expected="an ONNX file", remedy=f"Export it: {how}."
        )
    if path.is_file() and not path.stat().st_size:
        raise UnsupportedModelError("the file is empty", where=str(path), remedy="Save or fetch the model again.")
    folder = file_format == "huggingface"
    if path.is_dir() != folder:
        raise UnsupportedModelError(
            "the model is " + ("a file" if folder else "a folder"),
            where=str(path),
            expected="a folder with model.onnx and config.json" if folder else "a file",
        )
    if folder and tokenizer is None:
        return read_export(path, max_length=max_length, several=several)
    if tokenizer is None:
        return Export(path)
    if file_format != "onnx":
        raise UnsupportedModelError("--tokenizer belongs to candor import onnx", found=file_format, expected="onnx")
    return Export(path, texts=Texts(tokenizer.read_bytes(), max_length))


def _converted(file_format: str, path: Path) -> Converted:
    """Convert a file; libraries load some damaged ones, and stumble over them later."""
    try:
        return CONVERTERS[file_format](path)
    except (ImportRefusedError, MemoryError):
        raise
    except Exception as error:
        raise UnsupportedModelError(
            "the model cannot be converted: its file may be damaged",
            where=str(path),
            found=f"{type(error).__name__}: {error}"[:300],
            remedy="Save the model again.",
        ) from error


def _graph(
    model: Model, examples: Examples, keys: Sequence[str], output: str | None, converted: Converted | None
) -> tuple[Graph, str]:
    if converted is not None:
        if output is not None:
            raise UnsupportedModelError(
                "--output belongs to graphs that came as ONNX", found=output, expected="no --output: it is known here"
            )
        if converted.classes != len(keys):
            raise UnsupportedModelError(
                "the model has another number of classes than the rows",
                found=f"{converted.classes} classes",
                expected=", ".join(keys),
                remedy="Name all classes in the order of the model's scores: --labels 0=genuine,1=fraud.",
            )
        return converted.graph, described(converted.graph.output) + clipped(converted.graph.output)
    found, note = choose_output(model.outputs, _probed(model, examples), keys, output)
    return Graph(inputs=examples.inputs, output=found, batch=model.batch), note


def _probed(model: Model, examples: Examples) -> list[Any]:
    """Return what each output gives for the first rows: arrays, or lists of maps."""
    names = [port.name for port in model.outputs]
    size = model.batch or chunk_rows(examples.values)
    runs = []
    for start in range(0, min(len(examples.values), max(size, _PROBED // size * size)), size):
        rows = examples.values[start : start + size]
        if model.batch is not None:  # the last run repeats rows to fill its batch
            rows = np.resize(rows, (size, *rows.shape[1:]))
        runs.append(model.run(names, feed_all(examples.inputs, rows)))
    return [
        list(chain.from_iterable(parts)) if isinstance(parts[0], list) else np.concatenate(parts)
        for parts in zip(*runs, strict=True)
    ]


def _compared(
    native: Converted, graph: Graph, examples: Examples, logits: npt.NDArray[np.float32], rows: Rows, console: Console
) -> NativeCheck:
    """Compare with the library, and tell the result; the rows enter its graph by the converter's own description."""
    if len(native.graph.inputs) != 1 or len(graph.inputs) != 1:
        feeds = native.graph.feeds(examples.values[:])
    else:
        values = next(iter(graph.feeds(examples.values[:]).values()))
        if values.shape[1:] != native.graph.inputs[0].shape:
            raise NativeDifferenceError(
                "the graph and the native model take rows of different shapes",
                found=f"{values.shape[1:]} and {native.graph.inputs[0].shape}",
                expected="the same features",
            )
        feeds = {native.graph.inputs[0].name: values.astype(native.graph.inputs[0].dtype)}
    probabilities = softmax(logits.astype(np.float64))
    check = compare(probabilities, native.native(feeds), rows, library=native.library)
    console.print(
        f"{check.library} gives the same answers on {check.rows:,} rows: largest difference "
        f"{check.difference:.2g} (tolerance {check.tolerance:g}).",
        soft_wrap=True,
    )
    return check


def _check_alone(graph: Graph, model: Model, examples: Examples, logits: npt.NDArray[np.float32], rows: Rows) -> None:
    """Refuse a model that answers a row alone differently than among others: the service would not start with it."""
    first = Golden(examples.values[:GOLDEN_ROWS], logits[:GOLDEN_ROWS])
    alone = [
        score(graph, model.run, row[None], rows.take(np.array([place])), logits.shape[1], lambda _: None)
        for place, row in enumerate(first.inputs)
    ]
    if (differs := first.difference(np.concatenate(alone))) is not None:
        raise UnsupportedModelError(
            "the model answers a row alone differently than among other rows",
            found=str(differs.found),
            expected=str(differs.expected),
            remedy=f"The graph may draw random numbers ({', '.join(random)}). Export it for inference, without them."
            if (random := _random(model))
            else "Export the model for inference: no layer may use the statistics of its batch.",
        )


def _random(model: Model) -> list[str]:
    """Return the operators of a graph that draw random numbers, found by their names in its file; Dropout may."""
    return [name.decode() for name in _RANDOM if b"\x22" + bytes([len(name)]) + name in model.content]


def _format_of(path: Path) -> str:
    readable(path, "the library")
    try:
        return _FORMATS[path.suffix]
    except KeyError:
        raise UnsupportedModelError(
            "unknown format of the native model", where=str(path), expected=", ".join(_FORMATS)
        ) from None
