"""Replay recent predictions under another revision, before it is activated."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bundle.manifest import ENCODER_FILES
from candor.contract.traffic import TrafficChange
from service.decisions.calibrated import Calibrated
from service.decisions.multicalibrated import Multicalibrated
from service.decisions.rows import Rows
from service.decisions.traffic import ENOUGH_ROWS, exceeding, mixes, to_review
from service.errors import CandorError
from service.inference.finite import check_logits
from service.serving.plane import Served
from service.state.challengers import ChallengerStore, load_beside
from service.state.database import Database
from service.state.inputs import unpacked
from service.state.recent import load_recent_inputs, load_recent_rows, rows_at_once
from service.state.revisions import RevisionStore
from service.state.row_cells import RowCells
from service.state.window import Window

MOST_ROWS: Final = 20_000
MOST_SCORED: Final = 2_000
_ROWS_PER_RUN: Final = 32
_NOTHING_LOGGED: Final = "No prediction of this model is logged."
_NOTHING_STORED: Final = (
    "The newest prediction has no stored input, so its columns are not known: CANDOR_KEEP_INPUTS=all."
)
_PATIENCE_S: Final = 5.0
"""Maximum time to score rows with another model: predictions share the cores with it."""


def replay(database: Database, before: Served, after: Served, limit: float) -> TrafficChange:
    """Return the share of each action under two revisions on the newest predictions.

    With the same model both sides use the logged logits. Another model scores the stored inputs; where it cannot, what
    it made of predictions as a challenger counts. If nothing can be compared, or too few of these, somebody must accept
    that.

    Args:
        database: Open state.
        before: The active revision, with voided certificates marked.
        after: The other revision, ready to run.
        limit: Change of an action's share that needs no acceptance.

    Raises:
        StateUnavailableError: The database does not answer.
    """
    rows, logits, why = _rows(database, before, after)
    seen = Calibrated.of(before.calibrator, before.labels, rows, before.policies)
    found, reviewed = {}, frozenset[str]()
    if len(rows):
        then = Calibrated.of(after.calibrator, after.labels, replace(rows, logits=logits), after.policies)
        found, reviewed = mixes(seen, then, limit), to_review(before.policies, then)
    exceeds = exceeding(found, before.policies, after.policies, limit, reviewed)
    if why not in (None, _NOTHING_LOGGED) and before.policies.keys() & after.policies.keys():
        exceeds += (f"What it does to the traffic is not known. {why}",)
    return TrafficChange(
        revision=after.revision.id,
        rows=len(rows),
        window=rows.window(),
        limit=limit,
        policies=found,
        exceeds=exceeds,
        not_compared=None if len(rows) else why,
    )


def _rows(database: Database, before: Served, after: Served) -> tuple[Rows, NDArray[np.float32], str | None]:
    """Return rows with the active model's logits, those of the other model, and why there are none, or too few."""
    revision = before.revision
    same = revision.model_digest == after.revision.model_digest and before.labels == after.labels
    if same and _encoders(before) != _encoders(after):
        return *_none(before), "The bundle has the same model file but encodes inputs differently."
    if not same and isinstance(after.calibrator, Multicalibrated):
        return *_none(before), "The revision's calibrator reads columns, and these rows are of another model."
    cells = RowCells.of(before.bundle, before.calibrator, *([after.calibrator] if same else []))
    window = Window(revision.model, revision.model_digest, cells=cells)
    with database.connect() as connection:
        most = rows_at_once(len(before.labels), MOST_ROWS)
        logged = load_recent_rows(connection, window, label_names=before.labels, at_most=most)
        if same or not len(logged):
            nothing = _NOTHING_LOGGED if cells is None else _NOTHING_STORED
            return logged, logged.logits, None if len(logged) else nothing
        if before.specification == after.specification:
            most = rows_at_once(len(before.labels), MOST_SCORED)
            rows, contents = load_recent_inputs(connection, window, classes=len(before.labels), at_most=most)
            why = "Another model scores stored inputs, and the newest have none: CANDOR_KEEP_INPUTS=all."
        else:
            contents, why = np.empty(0, np.object_), "The revision's model has different inputs."
    if len(contents):
        try:
            logits = _scored(after, contents)
            return rows.take(slice(len(rows) - len(logits), None)), logits, None
        except CandorError as error:
            why = f"The other model cannot score recent inputs: {error}"
    rows, logits = _as_challenger(database, after, logged)
    if not len(rows):
        return *_none(before), f"{why} Or score it as a challenger first."
    few = f"{why} As a challenger it scored {len(rows)} recent rows. Expected: at least {ENOUGH_ROWS}."
    return rows, logits, few if len(rows) < ENOUGH_ROWS else None


def _as_challenger(database: Database, after: Served, logged: Rows) -> tuple[Rows, NDArray[np.float32]]:
    """Return the logged rows that a revision's bundle has scored as a challenger, and its logits.

    Of several challengers with this bundle, the one that scored the most of these rows counts.
    """
    revisions = RevisionStore(database)
    best = logged.take(slice(0, 0)), logged.logits[:0]
    for challenger in ChallengerStore(database).of(after.revision.model):
        if revisions.get(after.revision.model, challenger.revision).bundle_id == after.revision.bundle_id:
            span = int(logged.predicted_at[0]), int(logged.predicted_at[-1]) + 1
            with database.connect() as connection:
                found = load_beside(connection, challenger.number, logged, since_us=span[0], until_us=span[1])
            best = max(best, found, key=lambda one: len(one[0]))
    return best


def _encoders(served: Served) -> dict[str, str]:
    """Return the digests of the files that turn a client's data into the model's input."""
    files = served.bundle.manifest.files
    return {name: files[name] for name in ENCODER_FILES if name in files}


def _none(before: Served) -> tuple[Rows, NDArray[np.float32]]:
    logits = np.zeros((0, len(before.labels)), np.float32)
    return Rows(group=np.zeros(0, np.int64), logits=logits), logits


def _scored(after: Served, contents: NDArray[Any]) -> NDArray[np.float32]:
    """Return the logits of the newest inputs, as many as the time allows, oldest first."""
    parts: list[NDArray[np.float32]] = []
    until_s = time.monotonic() + _PATIENCE_S
    for end in range(len(contents), 0, -_ROWS_PER_RUN):
        if parts and time.monotonic() > until_s:
            break
        batch = unpacked(contents[max(end - _ROWS_PER_RUN, 0) : end].tolist(), after.input.numpy, after.input.shape)
        parts.append(after.session.run(batch))
        check_logits(parts[-1])
    return np.concatenate(parts[::-1])
