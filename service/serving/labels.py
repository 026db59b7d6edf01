"""Multi-label models: one run of the model file, then the calibrator, the policy and the log of each label's model.

Each label is a model of its own (docs/explanation/decisions/0046-labels-are-models.md); here they answer together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bundle import Bundle, InputSpec, LabelOf, Scores
from service.decisions.solved import SolvedPolicy
from service.errors import NotReadyError
from service.ids import id_of, new_ids
from service.inference.chain import Chain
from service.inference.given import Given
from service.inference.inputs import NOTHING, Encoder
from service.inference.session import Session
from service.inference.statistics import Timing
from service.serving.model import Model
from service.serving.plane import Answer, Decided, Plane, Served
from service.serving.queued import Queued, Request, inputs_of


class Named(NamedTuple):
    """What a `Revision` says of itself, for several together.

    Attributes:
        model: Name of the multi-label model.
        id: Ids of the revisions of its labels, in order.
    """

    model: str
    id: str


@dataclass(frozen=True, slots=True, eq=False)
class Active:
    """The active revisions of the labels, ready to run. One of these answers a request from start to end.

    Attributes:
        revision: Their names.
        labels: The labels.
        models: The model of each label.
        members: Its active revision.
        runs: Each different model file with the places of its labels; usually one.
        input: Input of all labels.
        encoder: What makes it.
    """

    revision: Named
    labels: tuple[str, ...]
    models: tuple[Model, ...]
    members: tuple[Served, ...]
    runs: tuple[tuple[Chain, tuple[int, ...]], ...]
    input: InputSpec
    encoder: Encoder | None

    @property
    def bundle(self) -> Bundle:
        """The bundle of the first label."""
        return self.members[0].bundle

    def policy(self, name: str | None) -> tuple[SolvedPolicy | None, ...]:
        """Return each label's policy `name`; see `Served.policy`."""
        return tuple(served.policy(name) for served in self.members)


@dataclass(slots=True, eq=False)
class LabelsAnswer:
    """Answer to a request, never changed: an `Answer` for each label, of the same rows.

    `ids` are the ids of the rows, see `service.ids.id_of`.
    """

    served: Active
    ids: list[str]
    references: Sequence[str | None] | None
    answers: list[Answer]
    timing: Timing

    @property
    def probabilities(self) -> npt.NDArray[np.float32]:
        """Probability of each label's presence, (N, L)."""
        return np.stack([answer.probabilities[:, 1] for answer in self.answers], axis=1)

    @property
    def logits(self) -> npt.NDArray[np.float32]:
        """Log-odds of each label's presence as the model gives them, (N, L)."""
        return np.stack([answer.logits[:, 1] - answer.logits[:, 0] for answer in self.answers], axis=1)


Logged = tuple[LabelsAnswer, "Future[None] | None"]


def check_codes(names: Sequence[str]) -> None:
    """Refuse models whose names would give a row one id in two logs: among 100 labels, 5 times in a million.

    Raises:
        NotReadyError: Two names have the same code.
    """
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(id_of("", name), name)
        if other != name:
            raise NotReadyError(
                "The ids of a row under two labels would be the same.",
                found=f"{other}, {name}",
                expected="names that differ in the codes that ids end with",
                remedy="Import the labels again with another name for one of them.",
            )


class _Calibrators:
    """The calibrators of several labels, on pairs of logits side by side."""

    def __init__(self, members: Sequence[Served]) -> None:
        self._each = [served.calibrator for served in members]

    def predict_proba(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return a pair of probabilities for each label, (N, 2L)."""
        return np.hstack(
            [each.predict_proba(logits[:, 2 * place : 2 * place + 2]) for place, each in enumerate(self._each)]
        )


class LabelsPlane(Queued[Active, Logged]):
    """Answer predictions of all labels of a multi-label model; failures count for the labels' own models."""

    def __init__(self, **limits: Any) -> None:
        super().__init__("labels", **limits)

    def failed(self, served: Active, began_ns: int) -> None:
        """Count a request without an answer, for each label."""
        for model, member in zip(served.models, served.members, strict=True):
            model.plane.failed(member, began_ns)

    def _run(self, requests: list[Request]) -> list[Logged]:
        active: Active = requests[0].lane
        began = time.perf_counter_ns()
        inputs = inputs_of(requests)
        before = sum(chain.calibrate_ns for chain, _ in active.runs)
        scores = self._infer(active, inputs, max(request.until_ns for request in requests))
        inferred = time.perf_counter_ns()
        calibrate_ns = sum(chain.calibrate_ns for chain, _ in active.runs) - before
        timing = Timing(began, calibrate_ns, inferred, len(requests), len(inputs))
        ids = new_ids(len(inputs))
        decided: list[tuple[Plane, Served, Decided, npt.NDArray[Any]]] = []
        for place, (model, served) in enumerate(zip(active.models, active.members, strict=True)):
            own = [replace(request, lane=served, policy=request.policy[place]) for request in requests]
            logits, probabilities = scores[place]
            of_model = [id_of(one, model.name) for one in ids]
            wholes = model.plane.decide(served, own, logits, probabilities, timing, of_model)
            # The client of a label's own model would have sent its score alone.
            decided.append((model.plane, served, wholes, logits if active.input.kind == "scores" else inputs))
        timing.ended_ns = time.perf_counter_ns()
        logged = [plane.log(served, wholes, given) for plane, served, wholes, given in decided]
        self._staged(requests, timing)
        answers: list[Logged] = []
        stop = 0
        for request, each in zip(requests, zip(*logged, strict=True), strict=True):
            start, stop = stop, stop + request.rows
            own_answers = [answer for answer, _ in each]
            answer = LabelsAnswer(active, ids[start:stop], request.per_row.references, own_answers, timing)
            answers.append((answer, _together([written for _, written in each if written is not None])))
        return answers

    def _infer(self, active: Active, inputs: npt.NDArray[Any], until_ns: int) -> dict[int, Any]:
        """Return logits and probabilities of each label, (N, 2) each, by its place."""
        found: dict[int, Any] = {}
        for chain, places in active.runs:
            parts = [
                chain.run(inputs[start : start + self._max_batch_size], first_row=start, until_ns=until_ns)
                for start in range(0, len(inputs), self._max_batch_size)
            ]
            logits, probabilities = (np.concatenate(each) for each in zip(*parts, strict=True))
            for at, place in enumerate(places):
                own = slice(2 * at, 2 * at + 2)
                found[place] = np.ascontiguousarray(logits[:, own]), np.ascontiguousarray(probabilities[:, own])
        return found


class MultiLabel:
    """A multi-label model: the models of its labels, and the plane that answers all of them.

    Args:
        name: Its name.
        members: Returns the models whose active revision says that they are one of its labels.
        plane: Its plane.

    Attributes:
        beyond: Columns that rows may have for challengers: none, whatever challengers its labels have.
    """

    beyond: Final = NOTHING

    def __init__(self, name: str, members: Callable[[], Sequence[Model]], plane: LabelsPlane) -> None:
        self.name = name
        self.plane = plane
        self._members = members
        self._active: Active | None = None

    @property
    def served(self) -> Active:
        """The active revisions of its labels.

        Raises:
            NotReadyError: A label has none, or two labels take different inputs.
        """
        models = self._members()
        served = tuple(model.served for model in models)
        if self._active is None or self._active.members != served:
            self._active = _active(self.name, models, served)
        return self._active

    def models(self) -> Mapping[str, Model]:
        """Return the model of each label."""
        served = self.served  # once: an activation may come meanwhile
        return dict(zip(served.labels, served.models, strict=True))


def _active(name: str, models: Sequence[Model], served: Sequence[Served]) -> Active:
    found: dict[str, tuple[Model, Served, LabelOf]] = {}
    for model, one in zip(models, served, strict=True):
        of = one.bundle.manifest.label_of
        if of is not None:
            found[of.label] = model, one, of
    if not found:
        raise NotReadyError(f"No label of multi-label model {name} has an active revision.")
    newest = max(found.values(), key=lambda one: one[1].revision.bundle_version)[2]
    if lacking := [label for label in newest.labels if label not in found]:
        raise NotReadyError(
            f"Multi-label model {name} has labels without an active revision: {', '.join(lacking)[:300]}.",
            found=", ".join(lacking)[:300],
            expected="an active revision for each label",
            remedy="Load their models, or wait until /readyz answers 200.",
        )
    chosen = [found[label] for label in newest.labels]
    check_codes([model.name for model, _, _ in chosen])
    members = tuple(one for _, one, _ in chosen)
    if len({(one.specification, isinstance(one.session, Given)) for one in members}) > 1:
        raise NotReadyError(
            f"The labels of multi-label model {name} take different inputs.",
            found=", ".join(f"{model.name} {one.revision.id}" for model, one, _ in chosen)[:300],
            expected="bundles of one import",
            remedy="Activate revisions of the same version of the bundle for all labels.",
        )
    encoder, spec = members[0].encoder, members[0].input
    if isinstance(encoder, Scores):
        parts = tuple(one.encoder for one in members if isinstance(one.encoder, Scores))
        encoder, spec = Scores(form="positive", labels=parts), spec.model_copy(update={"shape": (2 * len(members),)})
    return Active(
        Named(name, ",".join(one.revision.id for one in members)),
        newest.labels,
        tuple(model for model, _, _ in chosen),
        members,
        _runs(members),
        spec,
        encoder,
    )


def _runs(members: Sequence[Served]) -> tuple[tuple[Chain, tuple[int, ...]], ...]:
    """Return a chain for each different model file, with the places of its labels."""

    def key(place: int) -> str:
        one, graph = members[place], members[place].bundle.manifest.graph
        if isinstance(one.session, Given):
            return ""
        if graph is None or not graph.output.columns:
            return str(place)  # a model of this label alone
        output = graph.output.model_copy(update={"columns": ()})
        return one.revision.model_digest + graph.model_copy(update={"output": output}).model_dump_json()

    runs = []
    for _, group in groupby(sorted(range(len(members)), key=key), key):
        places = tuple(group)
        own = [members[place] for place in places]
        first, graph = own[0].session, own[0].bundle.manifest.graph
        if isinstance(first, Session) and graph is not None and graph.output.columns:
            graphs = [one.bundle.manifest.graph for one in own]
            session: Any = first.of_columns([each.output.columns[0] for each in graphs if each is not None])
        elif isinstance(first, Given):
            session = Given(2 * len(own))
        else:
            session = first
        calibrators: Any = _Calibrators(own)
        runs.append((Chain(session, calibrators), places))
    return tuple(runs)


def _together(written: list[Future[None]]) -> Future[None] | None:
    """Return a future that is done when all are; to cancel it cancels them."""
    if len(written) < 2:
        return written[0] if written else None
    whole: Future[None] = Future()
    lock, left = threading.Lock(), len(written)

    def one_done(one: Future[None]) -> None:
        nonlocal left
        with lock:
            left -= 1
            error = None if one.cancelled() else one.exception()
            if whole.done():
                return
            with suppress(InvalidStateError):  # cancelled meanwhile
                if error is not None:
                    whole.set_exception(error)
                elif not left:
                    whole.set_result(None)

    def ended(whole: Future[None]) -> None:
        if whole.cancelled():
            for one in written:
                one.cancel()

    whole.add_done_callback(ended)
    for one in written:
        one.add_done_callback(one_done)
    return whole
