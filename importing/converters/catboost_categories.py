"""Categories of a CatBoost model: its file has their hashes, and the rows or the user name them.

A split compares the hash of a text with one hash, so a text that no split names goes the way of all other texts: an
unknown category does, and one of the training rows may.

Source: CatBoost, catboost/libs/cat_feature (CalcCatFeatureHash); catboost/libs/model/model_export (the Python form).
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bundle import Column
from importing.errors import UnsupportedModelError
from importing.libraries import library

_MOST_UNUSED = 1000  # texts of a column that no split names, and that are listed as known
_OTHER = "\N{REPLACEMENT CHARACTER} other"  # CatBoost takes no missing category: a text that no model knows
_ENTRY = re.compile(r'^    "(.*)": (-?\d+),$', re.MULTILINE)


def hashes(texts: Iterable[str]) -> dict[str, int]:
    """Return CatBoost's hash of each text.

    Only the Python form of a model has texts beside their hashes, and only models of symmetric trees have that form: a
    small one is made for it. Its code is not run.

    Example:
        >>> hashes(["at", "de"])
        {'at': -526262204, 'de': 1887127037}
    """
    catboost = library("catboost")
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    small = catboost.CatBoostClassifier(iterations=1, depth=1, **quiet).fit([["a"], ["b"]], [0, 1], cat_features=[0])
    wanted, found = list(dict.fromkeys(texts)), dict[str, int]()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.py")
        while lacking := [[text] for text in wanted if text not in found]:  # of texts with one hash, one is written
            small.save_model(str(file), format="python", pool=catboost.Pool(lacking, cat_features=[0]))
            written = file.read_text(encoding="utf-8").partition("\ncat_features_hashes = {")[2].partition("\n}\n")[0]
            found |= {ast.literal_eval(f'b"{text}"').decode(): int(number) for text, number in _ENTRY.findall(written)}
    return found


def unnamed(name: str, known: Collection[int], empty: int) -> Column:
    """Return a categorical column whose texts are not known yet; an empty text is missing unless the model knows it.

    Args:
        name: Its name.
        known: Hashes that the model's splits name.
        empty: Hash of the empty text.
    """
    return Column(name, ("",) * (empty in known), "category", first_code=0, absent=float("nan"), literal=True)


def check_named(known: Mapping[str, Collection[int]], texts: Mapping[str, Mapping[str, int]]) -> None:
    """Raise UnsupportedModelError unless every hash of every column has a text.

    Args:
        known: Hashes that the model's splits name, by column.
        texts: Hashes by texts that may be categories, by column.
    """
    named = {name: len(own & set(texts[name].values())) for name, own in ((name, set(known[name])) for name in known)}
    if lacking := [name for name in known if named[name] < len(known[name])]:
        raise UnsupportedModelError(
            "CatBoost's file has no names of categories, and the rows do not have all that the model knows",
            found=", ".join(f"{named[name]} of {len(known[name])} categories of `{name}`" for name in lacking[:10]),
            expected="every category that a split names",
            remedy="Name those of the training rows: --categories categories.json, with "
            f'{{"{lacking[0]}": ["…", …], …}}. For candor.import_model, add rows with them.',
        )


def filled(column: Column, known: Mapping[int, int], texts: Mapping[str, int]) -> Column:
    """Return a categorical column with its texts; those that the model's splits name come first.

    Args:
        column: As `unnamed` made it.
        known: Codes from 0 by the hash that they stand for.
        texts: Hashes by texts that may be categories, with one for each hash in `known`.
    """
    by_hash: dict[int, str] = {}
    for text, found in texts.items():
        by_hash.setdefault(found, text)
    first = [by_hash[found] for found in known]
    others = sorted(text for text, found in texts.items() if text and found not in known)
    categories = (*first, *(others if len(others) <= _MOST_UNUSED else ()))
    return Column(column.name, categories, "category", first_code=0, absent=column.absent, literal=True)


def native_rows(features: NDArray[Any], columns: Mapping[int, Column]) -> list[list[Any]]:
    """Return rows of the graph as CatBoost takes them: texts in place of codes.

    Args:
        features: Rows (N, F).
        columns: Categorical columns by place.
    """
    cells = features.astype(object)
    for place, column in columns.items():
        texts = {code: text for text, code in column.codes.items()}
        cells[:, place] = [texts.get(code, _OTHER) for code in features[:, place].tolist()]
    return list(cells.tolist())
