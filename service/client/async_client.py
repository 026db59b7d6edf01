"""The client for asyncio, in which every method is written; `blocking` makes the other one of it."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote

import httpx

from service.client import answers
from service.client.answers import (
    AuditPage,
    Erasure,
    FeedbackReceipt,
    Health,
    Job,
    JobPage,
    LabelledSet,
    Model,
    Pointer,
    PolicyInForce,
    PolicyProposal,
    Predictions,
    PriorShift,
    ProposedJob,
    Recalibration,
    Rejection,
    Revision,
    RevisionPage,
)
from service.client.errors import JobFailedError, JobTimeoutError, NotFoundError
from service.client.exchange import AsyncHttp, Exchange, Http, Request
from service.client.label_files import joined, named_by_line, read_labels
from service.client.monitoring import Monitoring
from service.client.payloads import file_body, images_body, inputs_body, json_body, labelled_body
from service.client.simulation import Simulation

T = TypeVar("T")
Name = TypeVar("Name", str, str | None)
Mode = Literal["dry_run", "propose", "activate"]
GateMode = Literal["superior", "non_inferior"]

DEFAULT_URL = "http://127.0.0.1:8000"
_SERVER_WAIT_S = 30
_LABELS_PER_REQUEST = 5_000
_FIRST_POLL_S, _LONGEST_POLL_S = 0.1, 2.0


class AsyncClient:
    """Speaks to one service, for asyncio. `Client` has the same methods and blocks.

    Requests that change nothing, or that carry an idempotency key, are sent again when the service is unavailable or a
    connection breaks, up to `retries` times; all others only where they cannot have arrived.

    Every method that asks the service something raises ApiError where it refuses or fails, UnreachableError where
    nothing answers in time, and UnexpectedAnswerError where something else than a service does.

    Args:
        url: Where the service is.
        api_key: Sent as a bearer token.
        model: Model name; None is the service's default model.
        timeout_s: How long each part of one attempt (connecting, sending, the answer) may take.
        retries: How often a request may be sent again.
        http: What sends requests, made with httpx's `base_url`, `headers` and `timeout`.

    Raises:
        ValueError: The URL is none, or the key cannot be one.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        model: str | None = None,
        timeout_s: float = 70.0,
        retries: int = 3,
        http: Callable[..., Http] = AsyncHttp,
    ) -> None:
        if api_key is not None and not re.fullmatch(r"[\x21-\x7e]+", api_key):
            raise ValueError(
                "The API key has characters that no key has; it begins with cnd_ and is one line of ASCII."
            )
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            connections = http(base_url=url, headers=headers, timeout=timeout_s)
        except httpx.InvalidURL as error:
            raise ValueError(f"{url} is no URL: {error}") from error
        self._exchange = Exchange(connections, url=url, retries=retries)
        self._model = model

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._exchange.http.close()

    # Predictions and their labels

    async def predict(
        self,
        inputs: Any,
        *,
        policy: str | None = None,
        top: int | None = None,
        references: Sequence[str | None] | None = None,
        groups: Sequence[str | None] | None = None,
        segments: Sequence[str | None] | str | None = None,
    ) -> Predictions:
        """Predict a batch.

        Args:
            inputs: A NumPy array, nested lists of numbers, texts, or rows of a table as mappings by column name.
            policy: Policy that decides; None is the service's choice.
            top: Only this many probabilities of each, largest first; 0 for none, None for all.
            references: Your own names of the rows, by which feedback may come.
            groups: What each row belongs to: card, patient …
            segments: The part of the traffic that each row belongs to (country, shop …), or one for all.

        Raises:
            TypeError: `inputs` is no batch, or holds what cannot be sent.
        """
        whole, each = _of_whole(segments)
        body = inputs_body(inputs, {"references": references, "groups": groups, "segments": each})
        return await self._predict(body, policy, top, whole)

    async def predict_images(
        self,
        images: Sequence[bytes | Path | str],
        *,
        policy: str | None = None,
        top: int | None = None,
        references: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        segments: Sequence[str] | str | None = None,
    ) -> Predictions:
        """Predict PNG, JPEG or WebP images, given as their bytes or as paths of files, in one request.

        Raises:
            TypeError: `images` is a single one.
            OSError: A file cannot be read.
        """
        whole, each = _of_whole(segments)
        body = images_body(images, {"references": references, "groups": groups, "segments": each})
        return await self._predict(body, policy, top, whole)

    async def predict_file(
        self, path: Path | str, *, policy: str | None = None, top: int | None = None, segment: str | None = None
    ) -> Predictions:
        """Predict a PNG, JPEG, WebP, `.npy`, JSON or text file; `segment` is the part of the traffic that it is of.

        Raises:
            ValueError: The file's ending is none of these.
            OSError: It cannot be read.
        """
        return await self._predict(file_body(path), policy, top, segment)

    async def feedback(
        self, items: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> FeedbackReceipt:
        """Send true labels.

        Args:
            items: `{"prediction_id" or "reference": …, "label": …}` each, and `source` and `labelled_at` where known.
            idempotency_key: The same key with the same items stores them once; None is a new key.
        """
        body = json_body({"items": list(items)})
        body["headers"]["idempotency-key"] = idempotency_key or uuid.uuid4().hex
        return await self._ask(FeedbackReceipt, Request("POST", self._path("feedback"), True, body))

    async def feedback_file(
        self, path: Path | str, *, source: str = "client", idempotency_key: str | None = None
    ) -> FeedbackReceipt:
        """Send the true labels of a file, some thousands in a request.

        Nothing is sent of a file that cannot be read to its end. Where the service refuses a label, the error's `where`
        names its line; those of earlier requests are stored, and sent again they are duplicates, which do no harm.

        Args:
            path: `.csv` with a header, or `.ndjson` or `.jsonl` with an object a line, of prediction_id or reference,
                label, and source and labelled_at where known.
            source: Who says so, where a row does not say.
            idempotency_key: The same key with the same file stores it once; None is a new key. At most 190 characters.

        Raises:
            ValueError: It is no such file; the message says which line.
            OSError: It cannot be read.
        """
        path = Path(path)
        labels = read_labels(path)
        receipts = []
        for start in range(0, len(labels), _LABELS_PER_REQUEST):
            part = labels[start : start + _LABELS_PER_REQUEST]
            key = idempotency_key and (f"{idempotency_key}-{start}" if start else idempotency_key)
            with named_by_line(path, part):
                items = [{"source": source, **label.fields} for label in part]
                receipts.append(await self.feedback(items, idempotency_key=key))
        return joined(receipts)

    async def erase(
        self, *, group: str | None = None, reference: str | None = None, prediction_id: str | None = None
    ) -> Erasure:
        """Delete all that is stored of one subject, named by one of the three. It cannot be undone.

        Args:
            group: What its predictions were sent with in `groups`.
            reference: Your own reference of predictions, or of labels.
            prediction_id: A prediction's id.
        """
        body = json_body(_given(group=group, reference=reference, prediction_id=prediction_id))
        return await self._ask(Erasure, Request("POST", await self._named_path("erase"), True, body))

    # Labelled sets

    async def upload_labelled_set(
        self,
        rows: bytes | Path | str,
        *,
        represents: Literal["traffic"] | None = None,
        media_type: str | None = None,
        timeout_s: float = 600.0,
    ) -> LabelledSet:
        """Upload labelled rows to refit with; the same bytes again are the same set.

        Args:
            rows: Path of an `.npz`, `.parquet`, `.csv` or `.ndjson` file, which is read as it is sent; or its bytes.
            represents: "traffic" declares them to be a random sample of the model's traffic: only then they certify.
            media_type: What the rows are, where no ending says it.
            timeout_s: How long the service may take to check them.

        Raises:
            ValueError: Neither an ending nor `media_type` says what they are.
            OSError: The file cannot be read.
        """
        options, file = labelled_body(rows, media_type)
        options |= {"params": _given(represents=represents), "timeout": timeout_s}
        path = await self._named_path("labelled-sets")
        return await self._ask(LabelledSet, Request("POST", path, True, options, file))

    async def labelled_sets(self) -> tuple[LabelledSet, ...]:
        """Return the labelled sets of the model, newest first."""
        document = await self._exchange.document(Request("GET", await self._named_path("labelled-sets"), True))
        return tuple(answers.read(LabelledSet, item) for item in document["items"])

    async def delete_labelled_set(self, labelled_set: str) -> LabelledSet:
        """Delete a labelled set, unless a job is about to read it; return what it was."""
        path = await self._named_path(f"labelled-sets/{quote(labelled_set, safe='')}")
        return await self._ask(LabelledSet, Request("DELETE", path, False))

    # Recalibration

    async def recalibrate(
        self,
        *,
        mode: Mode = "dry_run",
        calibrator: str | None = None,
        gate: GateMode = "superior",
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        unknown_propensity: Literal["exclude", "fit"] = "exclude",
        rescore: bool = False,
        implicit_negative: Mapping[str, Any] | None = None,
        labelled_set: str | None = None,
        limits: Mapping[str, float] | None = None,
        timeout_s: float = 600.0,
    ) -> Recalibration:
        """Refit on labelled feedback and wait for the result.

        Args:
            mode: What may come of it.
            calibrator: Method; None is the one in service, `unchanged` solves the policies only.
            gate: What must be shown.
            since: Predictions made at or after this time.
            until: Predictions made before this time.
            unknown_propensity: Whether labels that nobody sought may enter the fit.
            rescore: Whether rows of earlier bundles whose inputs were kept are scored again, and join.
            implicit_negative: What it means that a source has said nothing: `label`, `source`, `maturity_days` and
                `actions`; None is that it means nothing.
            labelled_set: Id of an uploaded set, whose rows take the place of labelled traffic.
            limits: How much the refit may change, such as `flipped`, where that is less than the operator allows.
            timeout_s: How long to wait.

        Raises:
            JobFailedError: The refit came to no result.
            JobTimeoutError: It is not done within `timeout_s`; it goes on.
        """
        give_up = time.monotonic() + timeout_s
        wait_s = int(min(_SERVER_WAIT_S, timeout_s))
        source = _source(since, until, unknown_propensity, implicit_negative, labelled_set, rescore=rescore)
        document = await self._start(mode, calibrator, gate, source, limits, wait_s=wait_s)
        if "result" not in document:  # done already: a result stands alone
            return answers.read(Recalibration, document)
        job = answers.read(Job, document)
        return await self.wait(job.job, timeout_s=give_up - time.monotonic())

    async def start_recalibration(
        self,
        *,
        mode: Mode = "dry_run",
        calibrator: str | None = None,
        gate: GateMode = "superior",
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        unknown_propensity: Literal["exclude", "fit"] = "exclude",
        rescore: bool = False,
        implicit_negative: Mapping[str, Any] | None = None,
        labelled_set: str | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> Job:
        """Start a refit, as `recalibrate` does, and do not wait for it."""
        source = _source(since, until, unknown_propensity, implicit_negative, labelled_set, rescore=rescore)
        return answers.read(Job, await self._start(mode, calibrator, gate, source, limits, wait_s=0))

    async def job(self, job: str) -> Job:
        """Return how far a refit is."""
        return await self._ask(Job, Request("GET", f"/v1/jobs/{quote(job, safe='')}", True))

    async def jobs(
        self,
        *,
        model: str | None = None,
        state: Literal["queued", "running", "done", "failed", "cancelled"] | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> JobPage:
        """Return a page of refits, newest first, without their results."""
        options = {"params": _given(model=model, state=state, limit=limit, before=before)}
        return await self._ask(JobPage, Request("GET", "/v1/jobs", True, options))

    async def cancel(self, job: str) -> Job:
        """End a refit that waits or runs; looks that it has spent stay spent.

        Raises:
            ConflictError: It has ended.
        """
        return await self._ask(Job, Request("DELETE", f"/v1/jobs/{quote(job, safe='')}", False))

    async def propose_job(self, job: str) -> ProposedJob:
        """Keep what a dry run has found as a proposal, without another look.

        Raises:
            ConflictError: It is no dry run that is done, or what it started from is no longer in service.
        """
        return await self._ask(ProposedJob, Request("POST", f"/v1/jobs/{quote(job, safe='')}/propose", True))

    async def wait(
        self, job: str, *, timeout_s: float = 600.0, progress: Callable[[Job], object] | None = None
    ) -> Recalibration:
        """Wait for a refit's result.

        Args:
            job: Its id.
            timeout_s: How long to wait.
            progress: Called with the job each time that it is looked at.

        Raises:
            JobFailedError: It came to none, or was cancelled.
            JobTimeoutError: It is not done within `timeout_s`; it goes on.
        """
        give_up = time.monotonic() + timeout_s
        pause_s = _FIRST_POLL_S
        while True:
            found = await self.job(job)
            if progress is not None:
                progress(found)
            if found.state == "cancelled":
                raise JobFailedError(409, {"title": "Refit cancelled", "detail": found.summary, **found.document})
            if found.error is not None:
                problem = {"title": "Refit failed", "detail": found.error.get("message"), **found.error}
                raise JobFailedError(422, problem)
            if found.result is not None:
                return answers.read(Recalibration, found.result)
            if time.monotonic() + pause_s > give_up:
                raise JobTimeoutError(504, {"title": "Refit not done", "detail": f"Job {job} still runs."})
            await self._exchange.http.sleep(pause_s)
            pause_s = min(_LONGEST_POLL_S, 1.5 * pause_s)

    # Revisions and policies

    async def revisions(self, *, limit: int = 50, before: str | None = None) -> RevisionPage:
        """Return a page of revisions, newest first, with the active one and the epoch."""
        path = await self._named_path("revisions")
        options = {"params": _given(limit=limit, before=before)}
        return await self._ask(RevisionPage, Request("GET", path, True, options))

    async def revision(self, revision: str) -> Revision:
        """Return one revision whole."""
        path = await self._named_path(f"revisions/{quote(revision, safe='')}")
        return await self._ask(Revision, Request("GET", path, True))

    async def activate(self, revision: str, *, epoch: int, reason: str | None = None) -> Pointer:
        """Put a revision into service; `epoch` is the one that the decision is based on."""
        return await self._move(f"revisions/{quote(revision, safe='')}/activate", epoch, reason)

    async def reject(self, revision: str, *, reason: str) -> Rejection:
        """Turn a proposal down.

        Raises:
            ConflictError: It is none.
        """
        path = await self._named_path(f"revisions/{quote(revision, safe='')}/reject")
        return await self._ask(Rejection, Request("POST", path, False, json_body({"reason": reason})))

    async def audit(self, *, limit: int = 100, before: int | None = None) -> AuditPage:
        """Return a page of what was done to the model, newest first."""
        path = await self._named_path("audit")
        return await self._ask(AuditPage, Request("GET", path, True, {"params": _given(limit=limit, before=before)}))

    async def rollback(self, *, epoch: int, reason: str | None = None) -> Pointer:
        """Put the revision before back into service."""
        return await self._move("rollback", epoch, reason)

    async def policy(self, policy: str) -> PolicyInForce:
        """Return a policy as it is in force."""
        path = await self._named_path(f"policies/{quote(policy, safe='')}")
        return await self._ask(PolicyInForce, Request("GET", path, True))

    async def put_policy(self, policy: str, document: Mapping[str, Any]) -> PolicyProposal:
        """Propose a new or changed policy; it takes force when the revision that this makes is activated."""
        path = await self._named_path(f"policies/{quote(policy, safe='')}")
        return await self._ask(PolicyProposal, Request("PUT", path, True, json_body(document)))

    async def prior_shift(
        self,
        *,
        mode: Literal["dry_run", "propose"] = "dry_run",
        target: Mapping[str, float] | None = None,
        source: Mapping[str, float] | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        rows: int = 20_000,
    ) -> PriorShift:
        """Carry the calibrator in service over to other shares of the classes.

        Args:
            mode: "dry_run" keeps nothing, "propose" keeps a proposal.
            target: Known shares by label; None estimates them from recent predictions.
            source: Shares that the calibrator is right for; None takes those of the bundle's reference rows.
            since: For an estimate, predictions made at or after this time.
            until: For an estimate, predictions made before this time.
            rows: For an estimate, newest predictions that are taken, at most.
        """
        known = (
            {"estimate": _given(since=since, until=until, rows=rows)} if target is None else {"target": dict(target)}
        )
        body = json_body({"mode": mode, **known, **({} if source is None else {"source": dict(source)})})
        return await self._ask(
            PriorShift, Request("POST", await self._named_path("prior-shift"), mode == "dry_run", body)
        )

    async def simulate(
        self,
        policy: str,
        document: Mapping[str, Any] | None = None,
        *,
        against: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        rows: int = 20_000,
        flips: int = 100,
    ) -> Simulation:
        """Say what a policy would have done with the newest predictions.

        Args:
            policy: Its name.
            document: What it would be; it is kept as a proposal, as by `put_policy`. None is the one in force.
            against: Policy in force that it is compared with; None is the one of the same name.
            since: Predictions made at or after this time.
            until: Predictions made before this time.
            rows: Predictions that are tried, at most.
            flips: Changed rows that are named, at most.
        """
        path = await self._named_path(f"policies/{quote(policy, safe='')}/simulate")
        wanted = _given(document=document, against=against, since=since, until=until)
        body = json_body({"rows": rows, "flips": flips, **wanted})
        return await self._ask(Simulation, Request("POST", path, True, body))

    async def monitoring(self) -> Monitoring:
        """Return whether certificates still hold, whether probabilities are calibrated, and what labels say."""
        return await self._ask(Monitoring, Request("GET", await self._named_path("monitoring"), True))

    # Models and health

    async def models(self) -> tuple[Model, ...]:
        """Return the models, and what each serves."""
        document = await self._exchange.document(Request("GET", "/v1/models", True))
        return tuple(answers.read(Model, item) for item in document["items"])

    async def load(self, model: str) -> Model:
        """Serve a model, on every replica; newer bundles in its folder become proposals."""
        return await self._ask(Model, Request("POST", f"/v1/models/{quote(model, safe='')}/load", True))

    async def unload(self, model: str) -> Model:
        """Serve a model no longer, on any replica."""
        return await self._ask(Model, Request("POST", f"/v1/models/{quote(model, safe='')}/unload", True))

    async def health(self) -> Health:
        """Return whether every model serves what it should; a service that is not ready says so at once."""
        return answers.read(Health, await self._exchange.document(Request("GET", "/readyz"), also=503))

    async def ready(self) -> bool:
        """Say whether the service answers and is ready; asked once."""
        try:
            return (await self._exchange.http.send(Request("GET", "/readyz"))).status_code == 200
        except httpx.RequestError:
            return False

    async def _predict(
        self, body: dict[str, Any], policy: str | None, top: int | None, segment: str | None
    ) -> Predictions:
        options = {"params": _given(policy=policy, top=top, segment=segment), **body}
        return await self._ask(Predictions, Request("POST", self._path("predict"), True, options))

    async def _start(
        self,
        mode: Mode,
        calibrator: str | None,
        gate: GateMode,
        source: Mapping[str, Any],
        limits: Mapping[str, float] | None,
        *,
        wait_s: int,
    ) -> Any:
        more = _given(calibrator=calibrator, limits=None if limits is None else dict(limits))
        body = json_body({"mode": mode, "gate": gate, "source": source, **more})
        body["headers"]["prefer"] = f"wait={wait_s}"
        return await self._exchange.document(Request("POST", self._path("recalibrate"), False, body))

    async def _move(self, rest: str, epoch: int, reason: str | None) -> Pointer:
        body = json_body(_given(reason=reason))
        body["headers"]["if-match"] = f'"{epoch}"'
        return await self._ask(Pointer, Request("POST", await self._named_path(rest), False, body))

    async def _ask(self, kind: type[T], request: Request) -> T:
        return answers.read(kind, await self._exchange.document(request))

    def _path(self, verb: str) -> str:
        return f"/{verb}" if self._model is None else f"/v1/models/{quote(self._model, safe='')}/{verb}"

    async def _named_path(self, rest: str) -> str:
        """Return a path below the model's own, which has no short form: the only model's where none was named."""
        if self._model is None:
            names = [model.model for model in await self.models()]
            if len(names) != 1:
                raise NotFoundError(404, {"title": "Unknown model", "detail": f"Name one of the models {names}."})
            self._model = names[0]
        return self._path(rest)


def _of_whole(segments: Sequence[Name] | str | None) -> tuple[str | None, Sequence[Name] | None]:
    """Return what goes into the query, for the whole request, and what goes into the body, for each row."""
    return (segments, None) if isinstance(segments, str) else (None, segments)


def _source(
    since: datetime | str | None,
    until: datetime | str | None,
    unknown_propensity: str,
    implicit_negative: Mapping[str, Any] | None,
    labelled_set: str | None,
    *,
    rescore: bool,
) -> dict[str, Any]:
    """Return where a refit's rows come from.

    Raises:
        ValueError: A set was named, and a window of the traffic too.
    """
    if labelled_set is None:
        given = _given(since=since, until=until, unknown_propensity=unknown_propensity, rescore=rescore)
        return {
            "feedback": given if implicit_negative is None else given | {"implicit_negative": dict(implicit_negative)}
        }
    of_traffic = since is not None or until is not None or rescore or implicit_negative is not None
    if of_traffic or unknown_propensity != "exclude":
        raise ValueError("A refit takes its rows from a labelled set or from a window of the traffic, never from both.")
    return {"labelled_set": labelled_set}


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
