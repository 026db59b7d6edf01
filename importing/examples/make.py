"""From validation rows to examples of the model: which column or array enters which input, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bundle import Columns
from importing.errors import UnsupportedModelError
from importing.examples.arrays import array_examples
from importing.examples.images import Wanted, image_examples
from importing.examples.result import Examples
from importing.examples.tables import table_columns, table_examples
from importing.model import Port
from importing.rows import Rows


def make_examples(
    rows: Rows,
    ports: Sequence[Port],
    *,
    wanted: Sequence[Wanted] = (),
    order: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    columns: Columns | None = None,
    refuse_unknown: bool = False,
) -> Examples:
    """Match the features of the rows with the inputs of the graph.

    Args:
        rows: The rows.
        ports: Inputs of the graph.
        wanted: What the user says of inputs.
        order: Names of the columns in the order of the graph's only input; None for the order of the file.
        categories: Known values of columns that enter the graph as codes from 0, by column.
        columns: Columns as a converter knows them, in order; None to make them.
        refuse_unknown: Whether rows with unknown categories are refused later, instead of counted.

    Raises:
        AmbiguousModelError: An input can be filled in several ways.
        UnsupportedModelError: An input cannot be filled from rows.
        RowsError: A value of a row does not fit.
    """
    unsupported = [str(port) for port in ports if port.dtype is None]
    if unsupported:
        raise UnsupportedModelError("an input of the graph is not a tensor", found=", ".join(unsupported))
    options = {each.name or ports[0].name: each for each in wanted}
    if unknown := sorted(options.keys() - {port.name for port in ports}):
        raise UnsupportedModelError(
            f"the model has no input {unknown[0]!r}", expected=", ".join(port.name for port in ports)
        )
    arrays = rows.path.suffix.lower() == ".npz"
    if rows.files or (options and arrays):
        return image_examples(rows, ports, options.get(ports[0].name, Wanted()))
    if options:
        raise UnsupportedModelError(
            "--input describes images",
            where=str(rows.path),
            found=", ".join(options),
            expected="a folder of images, or an .npz of their pixels",
        )
    if arrays:
        return array_examples(rows, ports)
    unnamed = columns is None and order is None and len(ports) == 1
    if columns is None:
        columns = table_columns(rows, ports, order, categories or {})
    made = table_examples(rows, ports, columns, refuse_unknown=refuse_unknown)
    if unnamed:
        names = ", ".join(column.name for column in columns.columns)
        note = f"the model does not name its columns; they are read in the order of the file: {names}"
        made = replace(made, notes=(*made.notes, note))
    return made
