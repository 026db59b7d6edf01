"""What /v1 answers is JSON that reads back as the very numbers, whatever the labels are called."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from service.inference.per_row import PerRow
from service.inference.statistics import Timing
from service.rest.answer import size_of, write
from service.serving.plane import Answer

ODD = ("100 %", "%b", 'a "quoted" one', "back\\slash", "æøå 漢字 🙂", "line\nbreak", "{}", ",", "null", "1")


@pytest.fixture(scope="module")
def answered(shared: Any) -> Callable[[int, int], Answer]:
    served = shared.runtime.models.get("digits").plane.served

    def run(rows: int, classes: int) -> Answer:
        labels = tuple(ODD[at] if at < len(ODD) else f"class {at}" for at in range(classes))
        scores = np.random.default_rng(rows).gamma(0.05, size=(rows, classes)) + 1e-30
        probabilities = (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32)
        return Answer(
            served=replace(served, labels=labels),
            policy=None,
            ids=[f"id-{row}" for row in range(rows)],
            per_row=PerRow(references=[None if row % 2 else f'row "{row}"' for row in range(rows)]),
            logits=np.log(probabilities),
            probabilities=probabilities,
            labels=probabilities.argmax(axis=1),
            confidence=probabilities.max(axis=1),
            actions=[None if row % 2 else "read" for row in range(rows)],
            propensities=[None] * rows,
            sought=[row % 4 == 0 for row in range(rows)],
            timing=Timing(0, 0, 0, 1, rows),
        )

    return run


@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (1, 10), (7, 3), (900, 10), (3, 5000)])
def test_every_number_reads_back_under_its_label(
    answered: Callable[[int, int], Answer], rows: int, classes: int
) -> None:
    answer = answered(rows, classes)
    labels = answer.served.labels
    content = write(answer)
    document = json.loads(content)
    assert list(document) == ["model", "revision", "policy", "predictions"]
    assert len(document["predictions"]) == rows
    for row, prediction in enumerate(document["predictions"]):
        probabilities = prediction.pop("probabilities")
        assert tuple(probabilities) == labels
        np.testing.assert_array_equal(np.array(list(probabilities.values()), np.float32), answer.probabilities[row])
        assert np.float32(prediction.pop("confidence")) == answer.confidence[row]
        assert prediction == {
            "prediction_id": f"id-{row}",
            "reference": (answer.per_row.references or ())[row],
            "label": labels[answer.labels[row]],
            "decision": None if row % 2 else {"action": "read", "label_sought": row % 4 == 0},
        }
    assert 0.3 < size_of(answer) / len(content) < 3


def test_the_largest_come_first_and_equal_ones_in_the_order_of_the_labels(
    answered: Callable[[int, int], Answer],
) -> None:
    answer = answered(2, 5)
    answer.probabilities[:] = [[0.1, 0.3, 0.3, 0.1, 0.2], [0.0, 0.0, 0.0, 0.0, 1.0]]
    first, second = (prediction["probabilities"] for prediction in json.loads(write(answer, top=3))["predictions"])
    labels = answer.served.labels
    assert list(first.items()) == [(labels[1], 0.3), (labels[2], 0.3), (labels[4], 0.2)]
    assert list(second.items()) == [(labels[4], 1.0), (labels[0], 0.0), (labels[1], 0.0)]
    assert [prediction["probabilities"] for prediction in json.loads(write(answer, top=0))["predictions"]] == [{}, {}]
