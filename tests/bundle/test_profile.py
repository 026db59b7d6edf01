"""Profiles of columns: bins from some rows, counts of others, and what they are worth where rows depend."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bundle
from bundle import BundleFormatError, Column, ColumnProfile, Columns, InputSpec, Profile, TensorSpec

RNG = np.random.default_rng(3)


def profile_of(
    column: Column, chosen_on: list[float], counted_on: list[float]
) -> tuple[ColumnProfile, tuple[str, ...]]:
    one = Columns((column,))
    (found,) = Profile.of(one, *(np.array(rows, np.float32)[:, None] for rows in (chosen_on, counted_on))).columns
    return found, found.bin_names(column)


def test_a_number_has_deciles_and_a_bin_for_missing_values() -> None:
    rows = [*range(1, 1001)]
    found, names = profile_of(Column("x"), [*rows, np.nan], [*rows, np.nan, np.nan, 5000])
    assert names == (*(f"≤ {edge}" for edge in range(100, 1000, 100)), "> 900", "missing")
    assert found.counts == (100,) * 9 + (101, 2)


def test_a_frequent_value_has_a_bin_of_its_own() -> None:
    found, names = profile_of(Column("x"), [0] * 70 + [*range(1, 31)], [-1, 0, 0, 1, 30])
    assert names[:3] == ("< 0", "0", "≤ 10")
    assert found.counts[:3] == (1, 2, 1)


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([7, 7, 7], ("< 7", "7", "> 7", "missing")),
        ([1, 2, 2, 4], ("< 1", "1", "≤ 2", "≤ 4", "> 4", "missing")),
        ([np.nan, np.nan], ("any number", "missing")),
    ],
)
def test_few_values_are_bins(rows: list[float], names: tuple[str, ...]) -> None:
    assert profile_of(Column("x"), rows, rows)[1] == names


def test_the_most_frequent_categories_are_bins() -> None:
    many = tuple(f"c{place}" for place in range(30))
    codes = [code for code in range(30) for _ in range(30 - code)]
    found, names = profile_of(Column("x", many, first_code=0, absent=np.nan), codes, [0, 0, 19, 20, 29, np.nan, 77])
    assert names == (*many[:20], "other categories", "missing or unknown")
    assert (found.counts[0], found.counts[19:]) == (2, (1, 2, 2))


def test_texts_of_a_tensor_are_profiled_and_free_texts_are_not_kept() -> None:
    tensors = (TensorSpec(name="country", dtype="string"), TensorSpec(name="rest", dtype="float32", shape=(2,)))
    spec = InputSpec(kind="tensors", dtype="record", tensors=tensors)
    columns = Columns(
        (
            Column("amount", tensor="rest"),
            Column("country", ("DE", "FR"), "text", "country"),
            Column("age", tensor="rest"),
        )
    )
    rows = [{"country": country, "amount": 5, "age": 30} for country in ("DE", "DE", "FR", "XX", None)]
    values = columns.encode(rows, spec)
    profile = Profile.of(columns, values, values)
    assert profile.columns[1].bin_names(columns.columns[1]) == ("DE", "FR", "other categories", "unknown", "missing")
    assert profile.columns[1].counts == (2, 1, 0, 1, 1)
    assert [column.edges[-1] for column in (profile.columns[0], profile.columns[2])] == [5.0, 30.0]
    free = Columns((Column("name", None, "text", "country"),))
    alone = InputSpec(kind="tensors", dtype="record", tensors=tensors[:1])
    names = free.encode([{"name": "Ada"}, {"name": None}], alone)
    assert Profile.of(free, names, names).columns == (ColumnProfile("name", (), (), (1, 1)),)


def test_dependent_and_weighted_rows_count_as_many_independent_ones() -> None:
    columns = Columns((Column("x"),))
    cards = RNG.normal(size=200)
    rows = np.repeat(cards, 10)[:, None]
    whole = Profile.of(columns, rows, rows, group=np.repeat(np.arange(200), 10)).columns[0].counts
    assert sum(whole) == pytest.approx(200, abs=12), "ten equal rows are worth one"
    apart = Profile.of(columns, rows, RNG.normal(size=(2000, 1)), group=np.arange(2000)).columns[0].counts
    assert sum(apart) == pytest.approx(2000, abs=60)
    values = RNG.normal(size=4000)
    weight = np.where(values > 0, 1.0, 9.0)
    weighted = Profile.of(columns, values[:, None], values[:, None], weight=weight).columns[0].counts
    assert sum(weighted[:5]) / sum(weighted) == pytest.approx(0.9, abs=0.02)
    assert sum(weighted) < 0.7 * len(values)


def test_the_document_keeps_everything() -> None:
    profile = Profile((ColumnProfile("x", (1.5, 2.0), (), (1, 2, 3, 0)), ColumnProfile("y", (), ("ü",), (4, 0, 1))))
    assert Profile.load(profile.dump()) == profile
    profile.check(Columns((Column("x"), Column("y", ("ü", "z")), Column("later"))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "other"}, "does not fit the columns"),
        ({"counts": (1, 2, 3)}, "'x' does not fit"),
        ({"values": ("a",)}, "'x' does not fit"),
    ],
)
def test_a_profile_of_other_columns_is_refused(change: dict[str, object], message: str) -> None:
    profile = Profile((replace(ColumnProfile("x", (1.5, 2.0), (), (1, 2, 3, 0)), **change),))
    with pytest.raises(BundleFormatError, match=message) as caught:
        profile.check(Columns((Column("x"),)))
    assert caught.value.file == "profile.json"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"2.0", b"1.0"),
        (b"2.0", b"NaN"),
        (b"3,", b"-3,"),
        (b"3,", b"9" * 20 + b","),
        (b"3,", b"3," * 40),
        (b'"x"', b"7"),
        (b"edges", b"ends"),
        (b"}", b""),
    ],
)
def test_a_damaged_document_is_refused(old: bytes, new: bytes) -> None:
    whole = Profile((ColumnProfile("x", (1.5, 2.0), (), (1, 2, 3, 0)),)).dump()
    with pytest.raises(BundleFormatError, match="invalid profile"):
        Profile.load(whole.replace(old, new, 1))


def test_a_bundle_without_columns_has_no_profile(tmp_path: Path, contents: bundle.BundleContents) -> None:
    strange = replace(contents, profile=Profile((ColumnProfile("x", (), (), (1, 0)),)))
    with pytest.raises(BundleFormatError, match=r"profile\.json"):
        bundle.write(tmp_path, strange)
