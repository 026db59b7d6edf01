"""A batch of many requests answers each as if it were alone, and logs every row once."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from sqlalchemy import select

from service.inference.per_row import PerRow
from service.state.tables import predictions

ROWS = (1, 3, 1, 1, 2, 1, 4, 1)
AMOUNTS = tuple([float(which)] * rows if which % 2 else None for which, rows in enumerate(ROWS))
POLICIES = ("auto-read", "auto-read", "flag-zero", "flag-zero", "auto-read", "flag-zero", "auto-read", "auto-read")


def test_neighbours_with_different_policies_get_what_they_would_get_alone(service: Any, hold: Any, digits: Any) -> None:
    plane = service.runtime.models.get("digits").plane
    served = plane.served
    starts = np.cumsum((0, *ROWS))
    images = [digits.dimmed[start : start + rows] for start, rows in zip(starts, ROWS, strict=False)]
    alone = [
        asyncio.run(plane.predict(served, part, deadline_s=60, policy=policy))
        for part, policy in zip(images, POLICIES, strict=True)
    ]
    held = hold(plane)

    async def together() -> list[Any]:
        first = asyncio.ensure_future(plane.predict(served, images[0], deadline_s=60))
        await asyncio.to_thread(held.wait_until_busy)
        names = [[f"{which}-{row}" for row in range(rows)] for which, rows in enumerate(ROWS)]
        asks = [
            plane.predict(served, part, deadline_s=60, policy=policy, per_row=PerRow(references=own, amounts=amounts))
            for part, policy, own, amounts in zip(images, POLICIES, names, AMOUNTS, strict=True)
        ]
        waiting = [asyncio.ensure_future(ask) for ask in asks]
        while plane.queued_rows != sum(ROWS):  # noqa: ASYNC110 — what is waited for is on this very loop
            await asyncio.sleep(0)
        held.go.set()
        await first
        return await asyncio.gather(*waiting)

    answers = asyncio.run(together())
    assert [len(run) for run in held.runs] == [1, len(ROWS)]
    for which, (answer, single) in enumerate(zip(answers, alone, strict=True)):
        assert answer.policy is single.policy
        assert (answer.actions, answer.propensities) == (single.actions, single.propensities)
        np.testing.assert_allclose(answer.probabilities, single.probabilities, atol=1e-6)
        assert answer.per_row.references == [f"{which}-{row}" for row in range(ROWS[which])]
        assert len(answer.ids) == len(answer.sought) == ROWS[which]
    assert service.runtime.log.flush()
    with service.runtime.database.connect() as connection:
        query = select(predictions.c.id, predictions.c.reference, predictions.c.action, predictions.c.amount)
        rows = connection.execute(query.where(predictions.c.reference.is_not(None))).all()
    expected = [
        (id_, reference, action, amount)
        for answer, amounts in zip(answers, AMOUNTS, strict=True)
        for id_, reference, action, amount in zip(
            answer.ids, answer.per_row.references, answer.actions, amounts or [None] * len(answer.ids), strict=True
        )
    ]
    assert sorted(map(tuple, rows)) == sorted(expected)
    statistics = plane.statistics["r1"]
    assert (statistics.rows, statistics.success.count) == (2 * sum(ROWS) + 1, 2 * len(ROWS) + 1)
