"""The ids of a row in the logs of a multi-label model's labels."""

from __future__ import annotations

import pytest

from service.errors import NotReadyError
from service.ids import id_of, is_prediction_id, new_ids
from service.serving.labels import check_codes


def test_an_id_is_the_same_from_the_row_and_from_any_label() -> None:
    (row,) = new_ids(1)
    toxic, threat = (id_of(row, f"comments--{label}") for label in ("toxic", "threat"))
    assert is_prediction_id(toxic)
    assert toxic != threat
    assert id_of(threat, "comments--toxic") == toxic


def test_names_with_the_same_code_are_refused() -> None:
    alike = "m--10484", "m--68992"
    assert id_of("", alike[0]) == id_of("", alike[1])
    with pytest.raises(NotReadyError) as caught:
        check_codes(["m--1", *alike])
    assert caught.value.found == "m--10484, m--68992"
    check_codes([f"m--{number}" for number in range(100)])
