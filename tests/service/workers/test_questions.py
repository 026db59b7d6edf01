"""Questions of one worker to all, collected by the supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from service.others import CONDITION, FOLLOW
from service.workers.questions import Questions


def test_the_next_process_of_a_worker_gets_no_answers_to_questions_of_the_one_before() -> None:
    sent: list[tuple[int, Mapping[str, Any]]] = []

    async def run() -> None:
        questions = Questions(lambda worker, message: sent.append((worker, message)))
        questions.put(1, 0, FOLLOW, members={2}, missing={}, within_s=60.0, own=[])
        questions.ended(1)
        questions.put(1, 0, CONDITION, members={2}, missing={}, within_s=60.0, own=[])
        (_, first), (_, second) = sent
        questions.answered(2, first["id"], None, failed=False)
        assert len(sent) == 2
        questions.answered(2, second["id"], "fine", failed=False)

    asyncio.run(run())
    assert sent[2:] == [(1, {"told": 0, "answers": [(2, "fine", None)]})]
