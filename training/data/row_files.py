"""Files of rows: finding them, and reading them block by block."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bundle.table import WHOLE, is_number
from importing.errors import RowsError
from importing.rows import parquet
from importing.rows.block import Block
from importing.rows.class_names import class_names
from importing.rows.opened import ENDINGS, SPELLED, ending_of, opened
from importing.rows.roles import Roles
from importing.rows.values import Measures, Texts, Where
from training.data.distribution import Files, digest_of_many
from training.data.groups import Groups
from training.errors import ConfigurationError
from training.progress import progress


@dataclass(frozen=True)
class RowBlock:
    """Some rows of a file.

    Attributes:
        path: The file.
        block: The rows.
        unit: What the numbers of the block's lines count.
    """

    path: Path
    block: Block
    unit: str

    def where(self, name: str) -> Where:
        """Return what names the place of a row's value in a column."""
        return lambda row: f"{self.path}, {self.unit} {self.block.lines[row]}, column {name}"


class RowFiles:
    """One file of rows, the files of a folder, or those of a pattern.

    Args:
        files: Their data set, with the folder that `file` begins at.
        file: Path of the file or folder; or a pattern of paths, in which `*` and `?` stand for any characters
            of a name. Of folders and patterns, other endings are left out, and names that begin with a dot or an
            underscore.

    Attributes:
        where: The file, or the folder or pattern of several.
        spelled: Whether numbers are written as text.

    Raises:
        DataError: There is no such file, or several have different formats.
        RowsError: A Parquet file is so damaged that it crashes its reader.
    """

    def __init__(self, files: Files, file: str) -> None:
        self._files, self._file = files, file
        if not file:
            raise files.problem("the path of the file is empty")
        where = files.folder / file
        self.where = str(where)
        self._file_alone = where.is_file()
        if self._file_alone:
            self._paths = [where]
        elif where.exists() or set("*?") & set(file):
            self._paths = sorted(_found(where, files.folder, file))
            if len({path.resolve() for path in self._paths}) < len(self._paths):
                raise files.problem(f"{where.absolute()} has links to a file that is there as well")
        else:
            raise files.problem(f"{where.name} is missing in {where.parent.absolute()}")
        formats = sorted({ending_of(path) for path in self._paths})
        if len(formats) != 1:
            raise files.problem(
                f"{where.absolute()} has files that end in {' and in '.join(formats)}"
                if formats
                else f"no file that ends in {', '.join(ENDINGS)} is at {where.absolute()} (names with a dot or an "
                "underscore at the beginning do not count)"
            )
        self.spelled = formats[0] in SPELLED
        if formats == [".parquet"]:
            parquet.refuse_crashing(self._paths)
        self._common = os.path.commonpath([path.parent for path in self._paths])

    def blocks(self, roles: Roles) -> Iterator[RowBlock]:
        """Yield the rows in blocks. At the end the sha256 of the files is noted; a second time, it is compared.

        Raises:
            RowsError: A file cannot be read, or has changed meanwhile.
        """
        digests, count, told = dict[str, str](), 0, progress("Reading", None, "rows")
        for path in self._paths:
            with opened(path, roles) as file:
                for block in file.blocks:
                    yield RowBlock(path, block, file.unit)
                    told(count := count + len(block.lines))
                digests[path.relative_to(self._common).as_posix()] = file.sha256()
        if not count:
            raise RowsError(f"The {'file has' if len(digests) == 1 else 'files have'} no rows.", where=self.where)
        of_all = digests.popitem()[1] if self._file_alone else digest_of_many(digests)
        if self._files.note(self._file, of_all) != of_all:
            raise RowsError("A file changed while it was read.", where=self.where)


def _found(where: Path, start: Path, file: str) -> Iterator[Path]:
    """Yield the files of a folder, or of a pattern, that have a known ending."""
    paths: Iterable[Path] = (
        where.iterdir()
        if where.is_dir()
        else (start / path for path in glob.glob(file.replace("[", "[[]"), root_dir=start))  # noqa: PTH207 — may be absolute
    )
    for path in paths:
        if path.is_file() and not path.name.startswith((".", "_")) and ending_of(path) in ENDINGS:
            yield path


class RoleColumns:
    """Labels, weights and groups of rows that are read.

    Args:
        roles: Names of their columns.
        files: The files of the rows.
    """

    def __init__(self, roles: Roles, files: RowFiles) -> None:
        self._roles, self._where = roles, files.where
        self._label, self._groups = Texts("label"), Groups()
        self._weight = Measures("weight", positive=True, spelled=files.spelled)

    def add(self, rows: RowBlock) -> None:
        """Append rows; raises RowsError if a label is missing or a weight is not a number above 0."""
        roles, columns = self._roles, rows.block.columns
        self._label.add(columns[roles.label], rows.where(roles.label))
        if roles.weight is not None:
            self._weight.add(columns[roles.weight], rows.where(roles.weight))
        if roles.group is not None:
            names = Texts()
            names.add(columns[roles.group], rows.where(roles.group))
            self._groups.add(map(_whole, names.finish().tolist()))

    def labels(self, names: Sequence[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Return each row's class (N,) and the names of the classes: in the order of numbers if all are, else of texts.

        Args:
            names: Names for the classes in their order; none for the labels themselves.

        Raises:
            RowsError: All rows have the same label, or one is too long.
            ConfigurationError: There are more or fewer names than classes.
        """
        where = f"{self._where}, column {self._roles.label}"
        values = class_names(self._label.finish(), lambda _: where)
        distinct = sorted(set(values))
        if len(distinct) < 2:
            expected = "at least two classes"
            raise RowsError("All rows have the same label.", where=where, found=f"`{distinct[0]}`", expected=expected)
        if all(map(is_number, distinct)):
            distinct.sort(key=float)
        if names and len(names) != len(distinct):
            raise ConfigurationError(
                f"{len(names)} label_names for {len(distinct)} values of the label: {', '.join(distinct[:20])}"
            )
        codes = {value: code for code, value in enumerate(distinct)}
        return np.fromiter(map(codes.__getitem__, values), np.int64, len(values)), tuple(names) or tuple(distinct)

    def weights(self) -> NDArray[np.float64] | None:
        """Return the weights (N,), None without such a column."""
        return None if self._roles.weight is None else self._weight.finish()

    def groups(self) -> NDArray[np.int64] | None:
        """Return the number of each row's group (N,), None without such a column."""
        return None if self._roles.group is None else self._groups.finish()


def _whole(name: str | None) -> str | None:
    """Return the name of a group; a whole number written as a float without its decimals, as in other files."""
    return name if name is None or (match := WHOLE.fullmatch(name)) is None else match[1]
