"""What the state keeps of one uploader, however many upload at once."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from service.errors import LabelledSetStateError
from service.state.database import Database
from service.state.labelled_sets import Content, LabelledSetStore

CONTENT = Content(
    "logits", rows=1, labels={"cat": 1}, segments=[], dtype="float32", shape=[3], columns=["label", "group"]
)


def row(name: str, first: int, rows: int) -> bytes:
    assert (first, rows) == (0, 1)
    return np.zeros({"values": 12, "label": 4, "group": 8}[name], np.uint8).tobytes()


def test_a_set_that_is_being_stored_takes_room_already(database: Database) -> None:
    for limits in ({"max_sets": 1}, {"max_bytes": 199}):
        store = LabelledSetStore(database, **limits)
        by = str(limits)
        store.check_room(by, 100)
        add = partial(store.add, model_digest="9f2c" * 16, size=100, represents=None, content=CONTENT, by=by)

        def meanwhile(name: str, first: int, rows: int) -> bytes:
            with pytest.raises(LabelledSetStateError, match="limit of stored labelled sets"):
                add("dogs", sha256=by + "2", read=row)  # noqa: B023
            return row(name, first, rows)

        kept = add("pets", sha256=by, read=meanwhile)
        assert store.list("pets")[0] == kept
        assert store.list("dogs") == ()
