"""`--labels` in its forms, and remedies that it takes back."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from importing.class_order import class_order, written
from importing.errors import UnsupportedModelError
from importing.rows import Rows, read_rows


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    path = tmp_path / "rows.csv"
    path.write_text("amount,y\n1,a\n2,b\n")
    return read_rows(path, label="y")


def of_classes(rows: Rows, *classes: str) -> Rows:
    return replace(rows, label=np.array(classes, object))


@pytest.mark.parametrize(
    ("classes", "option", "names"),
    [
        (("<=50K", ">50K"), "<=50K=low, >50K=high", ("low", "high")),
        (("<=50K", ">50K"), "<=50K,>50K", ("<=50K", ">50K")),
        (("a", "a=b"), "a=b=x,a=y", ("x", "y")),
        (("a,b", "c"), '{"a,b": "x", "c": "y"}', ("x", "y")),
        (("a,b", "c"), '["c", "a,b"]', ("c", "a,b")),
        ((" a", "b"), " a=x,b", ("x", "b")),
        (("0", "1"), "0= genuine, 1 =fraud", ("genuine", "fraud")),
    ],
)
def test_each_form_of_the_option_names_the_classes(
    rows: Rows, classes: tuple[str, ...], option: str, names: tuple[str, ...]
) -> None:
    keys, found = class_order(of_classes(rows, *classes), option, None)
    assert (set(keys), found) == (set(classes), names)


@pytest.mark.parametrize("classes", [("a,b", "c=d"), (" a", "b "), ("[x]", "{y"), ("a", "a=b"), ('"', "it's")])
@pytest.mark.parametrize("names", [("genuine", "fraud"), ("a=b", "c, d"), None])
def test_what_a_remedy_prints_can_be_read(rows: Rows, classes: tuple[str, ...], names: tuple[str, ...] | None) -> None:
    option, text = shlex.split(written(classes, names or classes))
    assert option == "--labels"
    assert class_order(of_classes(rows, *classes), text, None) == (classes, names or classes)


@pytest.mark.parametrize("option", ['{"a": 1, "b": 2}', "[1, 2]", "{a=b", "[]", "[[]]"])
def test_an_option_that_is_not_json_is_refused(rows: Rows, option: str) -> None:
    with pytest.raises(UnsupportedModelError, match="--labels cannot be read"):
        class_order(rows, option, None)


def test_a_file_names_the_classes_of_the_model_without_the_spaces_around_them(rows: Rows) -> None:
    found = of_classes(rows, ">50K", "<=50K")
    assert class_order(found, None, (" <=50K", " >50K")) == (("<=50K", ">50K"), ("<=50K", ">50K"))
    own = (" <=50K", " >50K")
    assert class_order(of_classes(rows, *own), None, own) == (own, own)
