"""The client for asyncio; `blocking` derives the other client from it."""

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

from candor.contract.audit import AuditPage
from candor.contract.backtests import Backtest
from candor.contract.cases import Case, CaseDetail, CaseOrder, CasePage, CaseState, Claims, LabelledCase
from candor.contract.certificates import SolvedPolicy
from candor.contract.challengers import Challenger, ChallengerComparison, ChallengerPage
from candor.contract.documents import Answer
from candor.contract.erasure import Erasure
from candor.contract.feedback import FeedbackReceipt
from candor.contract.gate import GateMode
from candor.contract.health import Health
from candor.contract.jobs import Job, JobPage, JobState, ProposedJob
from candor.contract.labelled_sets import LabelledSet, LabelledSetPage
from candor.contract.labels import LabelsPredictions, LabelsReceipt
from candor.contract.models import Model, ModelPage
from candor.contract.monitoring import Monitoring
from candor.contract.predictions import Predictions
from candor.contract.prior_shift import PriorShift
from candor.contract.recalibration import Mode, Recalibration, UnknownPropensity
from candor.contract.revisions import Pointer, PolicyProposal, Rejection, Revision, RevisionPage
from candor.contract.simulation import Simulation
from candor.contract.traffic import TrafficChange
from candor.errors import JobFailedError, JobTimeoutError, NotFoundError
from candor.exchange import AsyncHttp, Exchange, Http, Request, read
from candor.label_files import joined, named_by_line, read_labels
from candor.payloads import file_body, images_body, json_body, labelled_body, prediction_body

T = TypeVar("T", bound=Answer)
Name = TypeVar("Name", str, str | None)

DEFAULT_URL = "http://127.0.0.1:8000"
_ACCEPTED = 202  # a job, where 200 is a result
_SERVER_WAIT_S = 30
_LABELS_PER_REQUEST = 5_000
_FIRST_POLL_S, _LONGEST_POLL_S = 0.1, 2.0


class AsyncClient:
    """A client of one service, for asyncio. `Client` has the same methods and blocks.

    Requests that change nothing, or that carry an idempotency key, are sent again when the service is unavailable or a
    connection breaks, up to `retries` times; other requests only if they cannot have arrived.

    Every method that sends a request raises ApiError if the service refuses or fails, UnreachableError if it does not
    answer in time, and UnexpectedAnswerError if the answer is not one of this version of Candor.

    Args:
        url: URL of the service.
        api_key: Sent as a bearer token.
        model: Model name; None for the service's default model.
        timeout_s: Timeout in seconds of each part of an attempt (connect, send, receive).
        retries: Maximum number of further attempts.
        http: Class that sends requests; called with httpx's `base_url`, `headers` and `timeout`.

    Raises:
        ValueError: The URL, the key or the number of retries is not valid.
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
            raise ValueError("The API key is not valid. Expected: one line of ASCII that begins with cnd_.")
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url} is not a valid URL. Expected: one that begins with http:// or https://.")
        if retries < 0:
            raise ValueError(f"retries is {retries}. Expected: 0 or more.")
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            connections = http(base_url=url, headers=headers, timeout=timeout_s)
        except httpx.InvalidURL as error:
            raise ValueError(f"{url} is not a valid URL: {error}") from error
        self._exchange = Exchange(connections, url=url, retries=retries)
        self._model = model
        self._default: str | None = None  # the service's, once it is known

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
        inputs: Any = None,
        *,
        scores: Any = None,
        probabilities: Any = None,
        logits: Any = None,
        policy: str | None = None,
        top: int | None = None,
        references: Sequence[str | None] | None = None,
        groups: Sequence[str | None] | None = None,
        segments: Sequence[str | None] | str | None = None,
        amounts: Sequence[float | None] | None = None,
    ) -> Predictions:
        """Predict a batch.

        Args:
            inputs: A NumPy array, nested lists of numbers, texts, or rows of a table as mappings by column name.
            scores: In place of inputs, for a model that others run: one number per row.
            probabilities: Likewise, one probability per class and row.
            logits: Likewise, one logit per class and row.
            policy: Policy that decides; None for the service's choice.
            top: Number of probabilities of each row, largest first; 0 for none, None for all.
            references: Your own ids of the rows; feedback can refer to them.
            groups: What each row belongs to: card, patient …
            segments: Part of the traffic that each row belongs to (country, shop …), or one for all.
            amounts: What is at stake in each row, in one unit of money; None where unknown.

        Raises:
            TypeError: Not exactly one of them is given, it is not a batch, or contains values that JSON cannot hold.
        """
        whole, each = _of_whole(segments)
        body = prediction_body(
            inputs,
            {"scores": scores, "probabilities": probabilities, "logits": logits},
            {"references": references, "groups": groups, "segments": each, "amounts": amounts},
        )
        return await self._predict(body, policy, top, whole)

    async def predict_labels(
        self,
        inputs: Any = None,
        *,
        scores: Any = None,
        policy: str | None = None,
        references: Sequence[str | None] | None = None,
        groups: Sequence[str | None] | None = None,
        segments: Sequence[str | None] | str | None = None,
        amounts: Sequence[float | None] | None = None,
    ) -> LabelsPredictions:
        """Predict all labels of a batch by a multi-label model; `model` is its name.

        Args:
            inputs: As in `predict`.
            scores: In place of inputs, for a model that others run: one number per label and row.
            policy: Policy that decides, of the same name for each label; None for the service's choice.
            references: Your own ids of the rows; feedback can refer to them.
            groups: What each row belongs to: card, patient …
            segments: Part of the traffic that each row belongs to (country, shop …), or one for all.
            amounts: What is at stake in each row, in one unit of money; None where unknown.

        Raises:
            TypeError: See `predict`; or the client has no model name.
        """
        whole, each = _of_whole(segments)
        names = {"references": references, "groups": groups, "segments": each, "amounts": amounts}
        options = {"params": _given(policy=policy, segment=whole), **prediction_body(inputs, {"scores": scores}, names)}
        return await self._ask(LabelsPredictions, Request("POST", self._labels_path("predict"), True, options))

    async def predict_images(
        self,
        images: Sequence[bytes | Path | str],
        *,
        policy: str | None = None,
        top: int | None = None,
        references: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        segments: Sequence[str] | str | None = None,
        amounts: Sequence[float | None] | None = None,
    ) -> Predictions:
        """Predict PNG, JPEG or WebP images in one request, given as bytes or file paths.

        Raises:
            TypeError: `images` is a single image.
            OSError: A file cannot be read.
        """
        whole, each = _of_whole(segments)
        given = {"references": references, "groups": groups, "segments": each, "amounts": amounts}
        body = images_body(images, given)
        return await self._predict(body, policy, top, whole)

    async def predict_file(
        self, path: Path | str, *, policy: str | None = None, top: int | None = None, segment: str | None = None
    ) -> Predictions:
        """Predict a PNG, JPEG, WebP, `.npy`, JSON or text file; `segment` names its part of the traffic.

        Raises:
            ValueError: The file has another ending.
            OSError: It cannot be read.
        """
        return await self._predict(file_body(path), policy, top, segment)

    async def feedback(
        self, items: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> FeedbackReceipt:
        """Send true labels.

        Args:
            items: `{"prediction_id" or "reference": …, "label": …}` each, optionally with `source` and `labelled_at`.
            idempotency_key: The same key with the same items stores them once; None for a new key.
        """
        body = json_body({"items": list(items)})
        body["headers"]["idempotency-key"] = idempotency_key or uuid.uuid4().hex
        return await self._ask(FeedbackReceipt, Request("POST", self._path("feedback"), True, body))

    async def feedback_labels(
        self, items: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> LabelsReceipt:
        """Send true labels of rows to a multi-label model; `model` is its name.

        Args:
            items: `{"prediction_id" or "reference": …, "labels": {"toxic": True, …}}` each, optionally with `source`
                and `labelled_at`. A label that is None or left out stays unknown.
            idempotency_key: The same key with the same items stores them once; None for a new key.

        Raises:
            TypeError: The client has no model name.
        """
        body = json_body({"items": list(items)})
        body["headers"]["idempotency-key"] = idempotency_key or uuid.uuid4().hex
        return await self._ask(LabelsReceipt, Request("POST", self._labels_path("feedback"), True, body))

    async def feedback_file(
        self, path: Path | str, *, source: str = "client", idempotency_key: str | None = None
    ) -> FeedbackReceipt:
        """Send the true labels of a file, in requests of some thousands.

        The whole file is read before anything is sent. If the service refuses a label, the error's `where` names its
        line. Labels of earlier requests are stored; sent again, they count as duplicates and do no harm.

        Args:
            path: `.csv` with a header, or `.ndjson` or `.jsonl` with one object a line: prediction_id or reference,
                label, optionally source and labelled_at.
            source: Source of rows that name none.
            idempotency_key: The same key with the same file stores it once; None for a new key. Maximum 190 characters.

        Raises:
            ValueError: A line is not a valid label, or the file has another ending.
            OSError: The file cannot be read.
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
        """Delete everything stored about one subject, named by one of the three. This cannot be undone.

        Args:
            group: Group that its predictions were sent with in `groups`.
            reference: Your own reference of predictions or labels.
            prediction_id: Id of a prediction.
        """
        body = json_body(_given(group=group, reference=reference, prediction_id=prediction_id))
        return await self._ask(Erasure, Request("POST", await self._named_path("erase"), True, body))

    # The review queue

    async def cases(
        self,
        *,
        state: CaseState | None = None,
        order: CaseOrder = "priority",
        policy: str | None = None,
        assignee: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> CasePage:
        """Return a page of the review queue.

        Args:
            state: Only cases in this state; None for all that wait. Done ones come in the order of their end.
            order: Order of the cases that wait.
            policy: Only cases of this policy.
            assignee: Only cases reserved for this person.
            limit: Maximum number, up to 500.
            after: `next` of the previous page.
        """
        given = _given(state=state, policy=policy, assignee=assignee, after=after)
        options = {"params": {"order": order, "limit": limit, **given}}
        return await self._ask(CasePage, Request("GET", await self._named_path("cases"), True, options))

    async def case(self, case: str) -> CaseDetail:
        """Return a case with its stored input, its probabilities, and the latest cases of its group."""
        return await self._ask(CaseDetail, Request("GET", await self._case_path(case), True))

    async def claim_cases(
        self, count: int = 1, *, lease_s: int = 900, policy: str | None = None, order: CaseOrder = "priority"
    ) -> tuple[Case, ...]:
        """Claim the next cases, those assigned to you first; fewer come when no others are free.

        Args:
            count: Maximum number, up to 100.
            lease_s: Seconds until the claims expire.
            policy: Only cases of this policy.
            order: Which come first.
        """
        body = json_body({"count": count, "lease_s": lease_s, "order": order, **_given(policy=policy)})
        # Not repeated: cases of a lost answer come back when their claims expire.
        return (await self._ask(Claims, Request("POST", await self._named_path("cases/claim"), False, body))).items

    async def claim_case(self, case: str, *, lease_s: int = 900) -> Case:
        """Claim a case, or extend your claim.

        Raises:
            ConflictError: Someone else has it, or it is done.
        """
        return await self._change_case(Case, case, "claim", lease_s=lease_s)

    async def label_case(self, case: str, label: str, *, lease: int | None = None) -> LabelledCase:
        """End a case with its true label, durably; again, to correct your own.

        Args:
            case: Its id.
            label: True label.
            lease: `lease` of your claim; the label is refused if the case has been claimed again.

        Raises:
            ConflictError: Someone else has it or ended it.
        """
        return await self._change_case(LabelledCase, case, "label", label=label, lease=lease)

    async def skip_case(self, case: str, reason: str, *, lease: int | None = None) -> Case:
        """End a case without a label.

        Raises:
            ConflictError: Someone else has it, or it is labelled.
        """
        return await self._change_case(Case, case, "skip", reason=reason, lease=lease)

    async def release_case(self, case: str, *, lease: int | None = None) -> Case:
        """Give your claim back, or reopen a case that you labelled or skipped.

        Raises:
            ConflictError: You neither hold nor ended it.
        """
        return await self._change_case(Case, case, "release", repeatable=False, lease=lease)

    async def assign_case(self, case: str, to: str | None) -> Case:
        """Reserve a waiting case for a person, by the name of the API key; None for anyone.

        Raises:
            ConflictError: It is done.
        """
        path = await self._case_path(case, "assign")
        return await self._ask(Case, Request("POST", path, True, json_body({"to": to})))

    # Labelled sets

    async def upload_labelled_set(
        self,
        rows: bytes | Path | str,
        *,
        represents: Literal["traffic"] | None = None,
        media_type: str | None = None,
        timeout_s: float = 600.0,
    ) -> LabelledSet:
        """Upload labelled rows to recalibrate on; the same bytes again are the same set.

        Args:
            rows: Path of an `.npz`, `.parquet`, `.csv` or `.ndjson` file, which is streamed; or its bytes.
            represents: "traffic" declares the rows a random sample of the model's traffic: only then they certify.
            media_type: Content type of the rows; None goes by the file's ending.
            timeout_s: Timeout in seconds for the service to check them.

        Raises:
            ValueError: The content type is unknown.
            OSError: The file cannot be read.
        """
        options, file = labelled_body(rows, media_type)
        options |= {"params": _given(represents=represents), "timeout": timeout_s}
        path = await self._named_path("labelled-sets")
        return await self._ask(LabelledSet, Request("POST", path, True, options, file))

    async def labelled_sets(self) -> tuple[LabelledSet, ...]:
        """Return the labelled sets of the model, newest first."""
        return (await self._ask(LabelledSetPage, Request("GET", await self._named_path("labelled-sets"), True))).items

    async def delete_labelled_set(self, labelled_set: str) -> LabelledSet:
        """Delete a labelled set, unless a job is about to read it; return its description."""
        path = await self._named_path(f"labelled-sets/{_part(labelled_set)}")
        return await self._ask(LabelledSet, Request("DELETE", path, False))

    # Recalibration

    async def recalibrate(
        self,
        *,
        mode: Mode = "dry_run",
        calibrator: str | None = None,
        columns: Sequence[str] | None = None,
        gate: GateMode = "superior",
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        unknown_propensity: UnknownPropensity = "exclude",
        rescore: bool = False,
        implicit_negative: Mapping[str, Any] | None = None,
        labelled_set: str | None = None,
        limits: Mapping[str, float] | None = None,
        timeout_s: float = 600.0,
    ) -> Recalibration:
        """Recalibrate on labelled rows and wait for the result.

        Args:
            mode: What to do with the result.
            calibrator: Method; None for that of the active calibrator, `unchanged` to solve only the policies.
            columns: Columns of a `multicalibration`; None for those of the active calibrator.
            gate: What the gate must show.
            since: Predictions made at or after this time.
            until: Predictions made before this time.
            unknown_propensity: Whether labels that were not sought may enter the fit.
            rescore: Whether to score stored inputs of earlier bundles again, and add them.
            implicit_negative: Use a source's silence as a label: `label`, `source`, `maturity_days` and `actions`.
            labelled_set: Id of a labelled set to use instead of labelled traffic.
            limits: Limits on what may change, such as `flipped`, tighter than the operator's.
            timeout_s: Seconds to wait.

        Raises:
            JobFailedError: The recalibration ended without a result.
            JobTimeoutError: It did not finish within `timeout_s`; it continues.
        """
        give_up = time.monotonic() + timeout_s
        wait_s = int(min(_SERVER_WAIT_S, timeout_s))
        source = _source(since, until, unknown_propensity, implicit_negative, labelled_set, rescore=rescore)
        response = await self._start(mode, calibrator, columns, gate, source, limits, wait_s=wait_s)
        if response.status_code != _ACCEPTED:
            return read(Recalibration, response)
        return await self.wait(read(Job, response).job, timeout_s=give_up - time.monotonic())

    async def start_recalibration(
        self,
        *,
        mode: Mode = "dry_run",
        calibrator: str | None = None,
        columns: Sequence[str] | None = None,
        gate: GateMode = "superior",
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        unknown_propensity: UnknownPropensity = "exclude",
        rescore: bool = False,
        implicit_negative: Mapping[str, Any] | None = None,
        labelled_set: str | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> Job:
        """Start a recalibration, as `recalibrate` does, without waiting for it."""
        source = _source(since, until, unknown_propensity, implicit_negative, labelled_set, rescore=rescore)
        return read(Job, await self._start(mode, calibrator, columns, gate, source, limits, wait_s=0))

    async def job(self, job: str) -> Job:
        """Return a recalibration job: its progress, and its result when it is done."""
        return await self._ask(Job, Request("GET", f"/v1/jobs/{_part(job)}", True))

    async def jobs(
        self,
        *,
        model: str | None = None,
        state: JobState | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> JobPage:
        """Return a page of recalibration jobs, newest first, without their results."""
        options = {"params": _given(model=model, state=state, limit=limit, before=before)}
        return await self._ask(JobPage, Request("GET", "/v1/jobs", True, options))

    async def cancel(self, job: str) -> Job:
        """Cancel a queued or running job; looks that it has used stay used.

        Raises:
            ConflictError: The job has ended.
        """
        return await self._ask(Job, Request("DELETE", f"/v1/jobs/{_part(job)}", False))

    async def propose_job(self, job: str) -> ProposedJob:
        """Keep the result of a dry run as a proposal, without another look.

        Raises:
            ConflictError: The job is not a finished dry run, or its base is no longer active.
        """
        return await self._ask(ProposedJob, Request("POST", f"/v1/jobs/{_part(job)}/propose", True))

    async def wait(
        self, job: str, *, timeout_s: float = 600.0, progress: Callable[[Job], object] | None = None
    ) -> Recalibration:
        """Wait for the result of a recalibration.

        Args:
            job: Its id.
            timeout_s: Seconds to wait.
            progress: Called with the job after each poll.

        Raises:
            JobFailedError: It failed, or was cancelled.
            JobTimeoutError: It did not finish within `timeout_s`; it continues.
        """
        give_up = time.monotonic() + timeout_s
        pause_s = _FIRST_POLL_S
        while True:
            found = await self.job(job)
            if progress is not None:
                progress(found)
            if found.state == "cancelled":
                raise JobFailedError(
                    409, {"title": "Recalibration cancelled", "detail": found.summary, **found.document}
                )
            if found.error is not None:
                problem = {"title": "Recalibration failed", "detail": found.error.message, **found.error.document}
                raise JobFailedError(422, problem)
            if found.result is not None:
                return found.result
            if time.monotonic() + pause_s > give_up:
                raise JobTimeoutError(
                    504, {"title": "Recalibration not finished", "detail": f"Job {job} is still running."}
                )
            await self._exchange.http.sleep(pause_s)
            pause_s = min(_LONGEST_POLL_S, 1.5 * pause_s)

    # Revisions and policies

    async def revisions(self, *, limit: int = 50, before: str | None = None) -> RevisionPage:
        """Return a page of revisions, newest first, with the active one and the epoch."""
        path = await self._named_path("revisions")
        options = {"params": _given(limit=limit, before=before)}
        return await self._ask(RevisionPage, Request("GET", path, True, options))

    async def revision(self, revision: str) -> Revision:
        """Return one revision with its calibrator, policies and report."""
        path = await self._named_path(f"revisions/{_part(revision)}")
        return await self._ask(Revision, Request("GET", path, True))

    async def activate(
        self,
        revision: str,
        *,
        epoch: int,
        reason: str | None = None,
        accept_change: bool = False,
        max_change: float | None = None,
        guard: Mapping[str, float] | None = None,
    ) -> Pointer:
        """Activate a revision, after a replay of recent predictions; `traffic` of the answer has its result.

        Args:
            revision: Id of the revision.
            epoch: Epoch that the decision is based on.
            reason: Why, for the audit log.
            accept_change: Activate it even if it changes the traffic beyond the limit; requires `reason`.
            max_change: Largest change of an action's share that needs no acceptance; can only tighten the service's
                limit.
            guard: `{"window": SECONDS, "max_change": SHARE}` to roll back by itself if an action's share changes more
                within that time; None for no guard.

        Raises:
            ConflictError: The epoch is stale, a reason is missing, or the change is not accepted.
        """
        path = f"revisions/{_part(revision)}/activate"
        change = {"accept_change": True} if accept_change else {}
        return await self._move(path, epoch, reason=reason, max_change=max_change, guard=guard, **change)

    async def traffic_change(self, revision: str, *, max_change: float | None = None) -> TrafficChange:
        """Return what activating a revision would do to recent predictions; `max_change` as for `activate`."""
        path = await self._named_path(f"revisions/{_part(revision)}/traffic")
        return await self._ask(TrafficChange, Request("GET", path, True, {"params": _given(max_change=max_change)}))

    async def reject(self, revision: str, *, reason: str) -> Rejection:
        """Reject a proposal.

        Raises:
            ConflictError: The revision is not a proposal.
        """
        path = await self._named_path(f"revisions/{_part(revision)}/reject")
        return await self._ask(Rejection, Request("POST", path, False, json_body({"reason": reason})))

    async def audit(self, *, limit: int = 100, before: int | None = None) -> AuditPage:
        """Return a page of the model's audit log, newest first."""
        path = await self._named_path("audit")
        return await self._ask(AuditPage, Request("GET", path, True, {"params": _given(limit=limit, before=before)}))

    async def rollback(self, *, epoch: int, reason: str | None = None) -> Pointer:
        """Activate the previous revision again."""
        return await self._move("rollback", epoch, reason=reason)

    async def policy(self, policy: str) -> SolvedPolicy:
        """Return a policy as it is in force."""
        path = await self._named_path(f"policies/{_part(policy)}")
        return await self._ask(SolvedPolicy, Request("GET", path, True))

    async def put_policy(self, policy: str, document: Mapping[str, Any]) -> PolicyProposal:
        """Propose a new or changed policy; activate the returned revision to put it into force."""
        path = await self._named_path(f"policies/{_part(policy)}")
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
        """Adjust the active calibrator to new class frequencies.

        Args:
            mode: "dry_run" keeps nothing, "propose" keeps a proposal.
            target: Known class frequencies by label; None estimates them from recent predictions.
            source: Class frequencies that the calibrator was fitted for; None for those of the bundle's reference rows.
            since: For an estimate, predictions made at or after this time.
            until: For an estimate, predictions made before this time.
            rows: For an estimate, maximum number of predictions, newest first.
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
        """Return what a policy would have done on recent predictions.

        Args:
            policy: Its id.
            document: Policy document, kept as a proposal as by `put_policy`; None for the policy in force.
            against: Policy in force to compare with; None for the one of the same name.
            since: Predictions made at or after this time.
            until: Predictions made before this time.
            rows: Maximum number of predictions, newest first.
            flips: Maximum number of changed rows to list.
        """
        path = await self._named_path(f"policies/{_part(policy)}/simulate")
        wanted = _given(document=document, against=against, since=since, until=until)
        body = json_body({"rows": rows, "flips": flips, **wanted})
        return await self._ask(Simulation, Request("POST", path, True, body))

    async def challengers(self) -> ChallengerPage:
        """Return the model's challengers: revisions that are scored beside the active one and never answer."""
        return await self._ask(ChallengerPage, Request("GET", await self._named_path("challengers"), True))

    async def challenger(self, name: str) -> ChallengerComparison:
        """Return which revision is better so far, a challenger or the active revision; every look is valid."""
        path = await self._named_path(f"challengers/{_part(name)}")
        return await self._ask(ChallengerComparison, Request("GET", path, True))

    async def put_challenger(
        self, name: str, *, revision: str | None = None, bundle: int | None = None, share: float = 0.1
    ) -> Challenger:
        """Score a revision beside the active one.

        Args:
            name: Name of the challenger.
            revision: Id of the revision.
            bundle: Version of a bundle instead, whose newest revision becomes the challenger.
            share: Share of the groups that a challenger of another bundle scores.
        """
        path = await self._named_path(f"challengers/{_part(name)}")
        body = json_body({"share": share, **_given(revision=revision, bundle=bundle)})
        return await self._ask(Challenger, Request("PUT", path, True, body))

    async def delete_challenger(self, name: str) -> Challenger:
        """Stop scoring a challenger, and delete its scores."""
        path = await self._named_path(f"challengers/{_part(name)}")
        return await self._ask(Challenger, Request("DELETE", path, False))

    async def backtest(
        self,
        policy: str,
        document: Mapping[str, Any] | None = None,
        *,
        against: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        rows: int = 20_000,
    ) -> Backtest:
        """Replay a policy on logged predictions: solved on the earlier half, judged on the later half.

        Args:
            policy: Its id.
            document: Policy document, which is not kept; None for the policy in force.
            against: Policy whose decisions are shown beside; None for the one of the same name.
            since: Predictions made at or after this time.
            until: Predictions made before this time.
            rows: Maximum number of fit rows, newest first.
        """
        path = await self._named_path(f"policies/{_part(policy)}/backtest")
        body = json_body({"rows": rows, **_given(document=document, against=against, since=since, until=until)})
        return await self._ask(Backtest, Request("POST", path, True, body))

    async def monitoring(self) -> Monitoring:
        """Return whether certificates and calibration still hold, and what labels say about the traffic."""
        return await self._ask(Monitoring, Request("GET", await self._named_path("monitoring"), True))

    # Models and health

    async def models(self) -> tuple[Model, ...]:
        """Return the models, and what each serves."""
        return (await self._ask(ModelPage, Request("GET", "/v1/models", True))).items

    async def load(self, model: str) -> Model:
        """Serve a model, on every replica; newer bundles in its folder become proposals."""
        return await self._ask(Model, Request("POST", f"/v1/models/{_part(model)}/load", True))

    async def unload(self, model: str) -> Model:
        """Stop serving a model, on every replica."""
        return await self._ask(Model, Request("POST", f"/v1/models/{_part(model)}/unload", True))

    async def health(self) -> Health:
        """Return whether every model serves its active revision, without waiting for a service that is not ready."""
        return read(Health, await self._exchange.success(Request("GET", "/readyz"), also=503))

    async def ready(self) -> bool:
        """Return whether the service answers and is ready, in one attempt."""
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
        columns: Sequence[str] | None,
        gate: GateMode,
        source: Mapping[str, Any],
        limits: Mapping[str, float] | None,
        *,
        wait_s: int,
    ) -> httpx.Response:
        chosen = None if columns is None else list(columns)
        more = _given(calibrator=calibrator, columns=chosen, limits=None if limits is None else dict(limits))
        body = json_body({"mode": mode, "gate": gate, "source": source, **more})
        body["headers"]["prefer"] = f"wait={wait_s}"
        return await self._exchange.success(Request("POST", self._path("recalibrate"), False, body))

    async def _move(self, rest: str, epoch: int, **fields: Any) -> Pointer:
        body = json_body(_given(**fields))
        body["headers"]["if-match"] = f'"{epoch}"'
        return await self._ask(Pointer, Request("POST", await self._named_path(rest), False, body))

    async def _change_case(self, kind: type[T], case: str, verb: str, *, repeatable: bool = True, **given: Any) -> T:
        body = json_body(_given(**given))
        return await self._ask(kind, Request("POST", await self._case_path(case, verb), repeatable, body))

    async def _case_path(self, case: str, verb: str | None = None) -> str:
        return await self._named_path(f"cases/{_part(case)}" + (f"/{verb}" if verb else ""))

    async def _ask(self, kind: type[T], request: Request) -> T:
        return read(kind, await self._exchange.success(request))

    def _labels_path(self, verb: str) -> str:
        if self._model is None:
            raise TypeError("a multi-label model has no default: give its name as model=")
        return f"/v1/multilabel/{_part(self._model)}/{verb}"

    def _path(self, verb: str) -> str:
        return f"/{verb}" if self._model is None else f"/v1/models/{_part(self._model)}/{verb}"

    async def _named_path(self, rest: str) -> str:
        """Return a path below the model's own; without a model name, that of the service's default model."""
        if self._model is None and self._default is None:
            page = await self._ask(ModelPage, Request("GET", "/v1/models", True))
            if page.default is None:
                names = [model.model for model in page.items]
                raise NotFoundError(
                    404, {"title": "No default model", "detail": f"Name one of the models: {', '.join(names)}."}
                )
            self._default = page.default
        return f"/v1/models/{_part(self._model or self._default or '')}/{rest}"


def _part(name: str) -> str:
    """Return a name or id as a part of a path.

    Raises:
        ValueError: It is not a text, or is empty, `.` or `..`, so that the path would be another one.
    """
    if not isinstance(name, str) or name in ("", ".", ".."):
        raise ValueError(f"{name!r} is not a name or id. Give one, such as r7 for a revision.")
    return quote(name, safe="")


def _of_whole(segments: Sequence[Name] | str | None) -> tuple[str | None, Sequence[Name] | None]:
    """Return the segment for the query (whole request) and the segments for the body (one a row)."""
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
    """Return the source of a recalibration's rows.

    Raises:
        ValueError: Both a labelled set and options of labelled traffic are given.
    """
    if labelled_set is None:
        given = _given(since=since, until=until, unknown_propensity=unknown_propensity, rescore=rescore)
        return {
            "feedback": given if implicit_negative is None else given | {"implicit_negative": dict(implicit_negative)}
        }
    of_traffic = since is not None or until is not None or rescore or implicit_negative is not None
    if of_traffic or unknown_propensity != "exclude":
        raise ValueError("Rows come from a labelled set or from labelled traffic, never from both.")
    return {"labelled_set": labelled_set}


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
