"""Cells of named columns of logged rows, read from their stored inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bundle import Bundle, Columns, InputSpec
from calibrators import Calibrator
from service.decisions.multicalibrated import Multicalibrated
from service.errors import RevisionStateError
from service.state.inputs import unpacked


@dataclass(frozen=True, slots=True)
class RowCells:
    """What reads the columns that calibrators need.

    Attributes:
        names: The columns.
        table: Columns of the model.
        spec: Its input.
    """

    names: tuple[str, ...]
    table: Columns
    spec: InputSpec

    @classmethod
    def of(cls, bundle: Bundle, *calibrators: Calibrator, also: tuple[str, ...] = ()) -> RowCells | None:
        """Return what reads the columns of all calibrators, and further ones; None if they need none.

        Raises:
            RevisionStateError: The input of the bundle's model does not tell one of them.
        """
        needed = {name for one in calibrators if isinstance(one, Multicalibrated) for name in one.columns}
        names = tuple(sorted(needed | set(also)))
        if not names:
            return None
        known = columns_told(bundle)
        if bundle.columns is None or not set(names) <= set(known):
            raise RevisionStateError(
                "The input of the model does not have the columns that the calibrator reads.",
                where="calibrator",
                found=list(names),
                expected=list(known),
            )
        return cls(names, bundle.columns, bundle.manifest.input)

    def of_inputs(self, inputs: NDArray[np.generic]) -> NDArray[np.void]:
        """Return the cells of inputs (N, F), as `Columns.cells_of` does."""
        return self.table.cells_of(inputs, self.names)

    def read(self, contents: Sequence[bytes | None]) -> NDArray[np.void]:
        """Return `cells` of stored inputs and whether there is one, `stored`, as a structured array (N,)."""
        here = [content for content in contents if content is not None]
        cells = self.of_inputs(unpacked(here, self.spec.numpy, self.spec.shape))
        found = np.zeros(len(contents), [("cells", cells.dtype), ("stored", np.bool_)])
        found["stored"] = [content is not None for content in contents]
        found["cells"][found["stored"]] = cells
        return found

    @staticmethod
    def complete(read: NDArray[np.void]) -> NDArray[np.void]:
        """Return the cells of what `read` returns.

        Raises:
            RevisionStateError: A row has no stored input.
        """
        if not read["stored"].all():
            raise RevisionStateError(
                "Rows lack the columns that the calibrator reads: their inputs are not stored.",
                where="CANDOR_KEEP_INPUTS",
                found=f"{np.sum(~read['stored'])} of {len(read)} rows",
                expected="all",
            )
        return read["cells"]


def columns_told(bundle: Bundle) -> tuple[str, ...]:
    """Return the columns that the input of a bundle's model tells; none without a table in one array.

    None either of the models of labels, which run together.
    """
    columns = bundle.columns
    alone = bundle.manifest.input.kind == "array" and bundle.manifest.label_of is None
    return columns.told if columns is not None and alone else ()
