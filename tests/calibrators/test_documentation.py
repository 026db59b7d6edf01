"""The guide runs, names everything, and says of each method what its docstring says and its code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import calibrators
from calibrators import CALIBRATORS, metrics
from calibrators.methods.inverse import INVERSES

GUIDE = (Path(__file__).parents[2] / "docs" / "reference" / "calibrators.md").read_text(encoding="utf-8")
# Whose promise is that of a calibrator inside, or holds while a fitted number is positive.
CONDITIONAL = {"platt", "prior_shift", "auto"}


def section(title):
    """Lines under a heading of the guide."""
    return GUIDE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def table(title):
    """Cells of the rows of a section's table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def preserved(calibrator):
    """The paragraph "Preserves" of a docstring, in one line."""
    found = re.search(r"Preserves: (.+?)(?=\n\s*\n|\n\s*When to use:)", calibrator.__doc__, re.DOTALL)
    assert found, calibrator.__name__
    return " ".join(found[1].split())


def claims(text):
    """What a sentence promises, in words that both the guide and the docstrings use."""
    text = re.sub(r"\bnot the arg max|\bOn the margin: .*", "", text)
    if "nothing for certain" in text:
        return {"nothing"}
    if "wrapped" in text or "chosen" in text:
        return {"what is inside"}
    words = {"arg max": r"arg max", "order": r"\border\b", "label": r"\blabel\b", "everything": "everything"}
    return {claim for claim, pattern in words.items() if re.search(pattern, text)}


def test_its_code_runs():
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) >= 3
    exec("\n".join(blocks), {})


def test_every_calibrator_is_in_its_table_in_order():
    assert [row[0] for row in table("What to use when")] == [f"`{name}`" for name in CALIBRATORS]
    for row in table("What to use when"):
        assert len(row) == 4
        assert all(row)


def test_every_metric_is_in_its_table():
    named = " ".join(row[0] for row in table("Metrics"))
    assert [name for name in metrics.__all__ if name[0].islower() and f"`{name}`" not in named] == []


def test_every_public_function_is_named():
    functions = [name for name in calibrators.__all__ if inspect.isfunction(getattr(calibrators, name))]
    assert [name for name in functions if not re.search(rf"\b{name}\b", GUIDE)] == []


@pytest.mark.parametrize("calibrator", CALIBRATORS.values())
def test_every_docstring_says_what_is_kept_when_to_use_it_and_where_it_is_from(calibrator):
    assert preserved(calibrator)
    assert re.search(r"When to use: \w.+", calibrator.__doc__)
    assert "Attributes:" in calibrator.__doc__ or calibrator.name == "identity"
    assert "References:" in calibrator.__doc__ or calibrator.name in {"identity", "auto"}


@pytest.mark.parametrize("name", CALIBRATORS)
def test_guide_docstring_and_code_agree_on_what_is_kept(name):
    calibrator = CALIBRATORS[name]
    said = claims(preserved(calibrator))
    assert said
    assert claims(next(row[2] for row in table("What to use when") if row[0] == f"`{name}`")) == said
    if name not in CONDITIONAL:
        assert calibrator.preserves_order == bool(said & {"order", "everything"})
    if name == "platt":
        assert "a > 0" in preserved(calibrator)
        assert said == {"order"}
    assert calibrator().top_label_only == ("label" in said)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_the_arg_max_and_strict_order_hold_where_docstrings_promise_them(name, world):
    said = preserved(CALIBRATORS[name])
    for seed in range(3):
        logits, labels = world(300, 5, 1.6, seed)
        if claims(said) & {"arg max", "everything"}:
            probabilities = CALIBRATORS[name]().fit(logits, labels).predict_proba(logits)
            np.testing.assert_array_equal(probabilities.argmax(axis=1), logits.argmax(axis=1))
        logits, labels = world(300, 2, 1.6, seed)
        if "strictly" in said:
            calibrator = CALIBRATORS[name]().fit(logits, labels)
            inner = np.linspace(*np.quantile(logits[:, 1] - logits[:, 0], [0.3, 0.7]), 500)
            rising = calibrator.predict_proba(np.stack([0 * inner, inner], axis=1))[:, 1]
            assert (np.diff(rising) > 0).all()


def test_the_methods_that_count_rows_are_listed():
    items = re.split(r"\n- ", section("What to use when"))
    counting = next(item for item in items if item.startswith("**What weights count for"))
    named = set(re.findall(r"`(\w+)`", counting)) & set(CALIBRATORS)
    assert named == {name for name, kind in CALIBRATORS.items() if "weight_kind" in inspect.signature(kind).parameters}


def test_the_methods_with_an_inverse_are_listed():
    named = set(re.findall(r"`(\w+)`", section("Back to logits").partition("|")[0])) & set(CALIBRATORS)
    assert named == {kind.name for kind in INVERSES}


def test_the_methods_that_give_zero_and_one_are_listed(world):
    item = next(part for part in re.split(r"\n- ", section("What to use when")) if part.startswith("**Zero and one"))
    exact, next_to = (set(re.findall(r"`(\w+)`", part)) for part in item.partition("`venn_abers`")[0].split("exactly"))
    for classes in (2, 3):
        rows, fresh = world(500, classes, 1.5), world(2000, classes, 1.5, seed=4)[0]
        least = {name: kind().fit(*rows).predict_proba(fresh).min() for name, kind in CALIBRATORS.items()}
        assert {name for name, found in least.items() if found == 0} == exact
        assert {name for name, found in least.items() if 0 < found < 1e-9} == next_to


def test_the_methods_that_are_not_symmetric_in_the_classes_are_listed(world):
    (logits, labels), unlike = world(503, 2, 1.5), set()
    for name, kind in CALIBRATORS.items():
        found = kind().fit(logits, labels).predict_proba(logits)
        exchanged = kind().fit(logits[:, ::-1], 1 - labels).predict_proba(logits[:, ::-1])[:, ::-1]
        if np.abs(found - exchanged).max() > 1e-9:
            unlike.add(f"`{name}`")
    assert {row[0] for row in table("What to use when") if "not symmetric" in row[3]} == unlike


def test_a_matrix_does_no_harm_with_few_labels_per_class(world):
    fresh = world(5000, 30, 1.5, seed=5)

    def loss(name, rows, classes=30):
        fitted = CALIBRATORS[name]().fit(*world(rows, classes, 1.5))
        logits, labels = fresh if classes == 30 else world(5000, classes, 1.5, seed=5)
        return metrics.negative_log_likelihood(fitted.predict_proba(logits), labels)

    for rows, classes in ((900, 30), (150, 5), (100, 30)):
        assert loss("matrix", rows, classes) < loss("identity", rows, classes)
    assert loss("matrix", 100) == pytest.approx(loss("temperature", 100), abs=1e-6)
    assert loss("structured_matrix", 100) < loss("identity", 100)


def test_orders_step_back_by_no_more_than_the_last_bit():
    rng = np.random.default_rng(0)
    scores = np.sort(rng.normal(0, 0.01, 20_000)) + 1
    logits = np.stack([np.zeros(20_000), scores], axis=1)
    labels = (rng.random(20_000) < 0.5).astype(int)
    for name, kind in CALIBRATORS.items():
        if kind.preserves_order:
            rising = kind().fit(logits, labels).predict_proba(logits)[:, 1]
            assert (np.diff(rising) >= -np.spacing(rising[1:])).all(), name
