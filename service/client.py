"""Candor's HTTP client (needs httpx only).

Example:
    with Client("http://127.0.0.1:8000") as candor:
        answer = candor.predict_file("examples/seven.png", policy="auto-read")
        candor.feedback([{"prediction_id": answer["predictions"][0]["prediction_id"], "label": "7"}])
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

DEFAULT_URL = "http://127.0.0.1:8000"
_MEDIA_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".npy": "application/x-npy",
    ".json": "application/json",
}
_RETRIED = frozenset({502, 503, 504})
_RETRIES = 3
_JOB_POLL_S = 0.2


class ApiError(Exception):
    """The service refused a request, or failed.

    Attributes:
        status: HTTP status.
        problem: The problem document.
    """

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        self.status = status
        self.problem = problem


class UnreachableError(Exception):
    """No service answers at this URL."""


class Client:
    """Speaks to one service.

    Requests that change nothing, or that carry an idempotency key, are tried again when the service is unavailable.

    Args:
        url: Where the service is.
        api_key: Sent as a bearer token.
        model: Model name; None is the service's default model.
        timeout_s: How long one request may take.

    Raises:
        ValueError: The URL is none.
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, api_key: str | None = None, model: str | None = None, timeout_s: float = 70.0
    ) -> None:
        if api_key is not None and not re.fullmatch(r"[\x21-\x7e]+", api_key):
            raise ValueError(
                "The API key has characters that no key has; it begins with cnd_ and is one line of ASCII."
            )
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s)
        except httpx.InvalidURL as error:
            raise ValueError(f"{url} is no URL: {error}") from error
        self._model = model

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def predict(
        self,
        inputs: Any,
        *,
        policy: str | None = None,
        top: int | None = None,
        references: Sequence[str | None] | None = None,
        groups: Sequence[str | None] | None = None,
    ) -> dict[str, Any]:
        """Predict a batch given as nested lists or as an array with `tolist`.

        Raises:
            ApiError: The service refused it.
            UnreachableError: No service answers.
        """
        body = {"inputs": inputs.tolist() if hasattr(inputs, "tolist") else inputs}
        body |= {
            key: list(value) for key, value in (("references", references), ("groups", groups)) if value is not None
        }
        return self._call("POST", self._path("predict"), params=_given(policy=policy, top=top), json=body, retry=True)

    def predict_file(self, path: Path | str, *, policy: str | None = None, top: int | None = None) -> dict[str, Any]:
        """Predict a PNG, JPEG, WebP, `.npy` or JSON file.

        Raises:
            ValueError: The file's ending is none of these.
            ApiError: The service refused it.
            UnreachableError: No service answers.
        """
        path = Path(path)
        media_type = _MEDIA_TYPES.get(path.suffix.lower())
        if media_type is None:
            raise ValueError(f"{path}: expected a file ending in one of {', '.join(_MEDIA_TYPES)}")
        return self._call(
            "POST",
            self._path("predict"),
            params=_given(policy=policy, top=top),
            content=path.read_bytes(),
            headers={"content-type": media_type},
            retry=True,
        )

    def feedback(self, items: Sequence[dict[str, Any]], *, idempotency_key: str | None = None) -> dict[str, Any]:
        """Send true labels: `{"prediction_id" or "reference": …, "label": …, "source": …}` each."""
        headers = {"idempotency-key": idempotency_key or uuid.uuid4().hex}
        return self._call("POST", self._path("feedback"), json={"items": list(items)}, headers=headers, retry=True)

    def recalibrate(
        self,
        *,
        mode: str = "dry_run",
        calibrator: str | None = None,
        gate: str = "superior",
        since: str | None = None,
        until: str | None = None,
        unknown_propensity: str = "exclude",
        timeout_s: float = 600.0,
    ) -> dict[str, Any]:
        """Refit on labelled feedback and wait for the result.

        Raises:
            ApiError: The refit was refused, failed, or took longer than `timeout_s`.
        """
        source = _given(since=since, until=until, unknown_propensity=unknown_propensity)
        body = {"mode": mode, "gate": gate, "source": {"feedback": source}, **_given(calibrator=calibrator)}
        answer = self._call("POST", self._path("recalibrate"), json=body, headers={"prefer": "wait=30"})
        give_up = time.monotonic() + timeout_s
        while "result" in answer:  # a job that is not done; a result stands alone
            if answer["error"] is not None:
                raise ApiError(422, {"title": "Refit failed", "detail": answer["error"]["message"], **answer["error"]})
            if answer["result"] is not None:
                result: dict[str, Any] = answer["result"]
                return result
            if time.monotonic() > give_up:
                raise ApiError(504, {"title": "Refit not done", "detail": f"Job {answer['job']} still runs."})
            time.sleep(_JOB_POLL_S)
            answer = self._call("GET", f"/v1/jobs/{answer['job']}", retry=True)
        return answer

    def models(self) -> list[dict[str, Any]]:
        """Return the models in service."""
        items: list[dict[str, Any]] = self._call("GET", "/v1/models", retry=True)["items"]
        return items

    def revisions(self, *, limit: int = 50, before: str | None = None) -> dict[str, Any]:
        """Return a page of revisions, newest first, with the active one and the epoch."""
        return self._call("GET", self._named_path("revisions"), params=_given(limit=limit, before=before), retry=True)

    def revision(self, revision: str) -> dict[str, Any]:
        """Return one revision whole."""
        return self._call("GET", self._named_path(f"revisions/{quote(revision, safe='')}"), retry=True)

    def activate(self, revision: str, *, epoch: int, reason: str | None = None) -> dict[str, Any]:
        """Put a revision into service; `epoch` is the one that the decision is based on."""
        return self._move(f"revisions/{quote(revision, safe='')}/activate", epoch, reason)

    def rollback(self, *, epoch: int, reason: str | None = None) -> dict[str, Any]:
        """Put the revision before back into service."""
        return self._move("rollback", epoch, reason)

    def ready(self) -> bool:
        """Say whether the service answers and is ready."""
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _move(self, path: str, epoch: int, reason: str | None) -> dict[str, Any]:
        return self._call(
            "POST", self._named_path(path), json=_given(reason=reason), headers={"if-match": f'"{epoch}"'}
        )

    def _path(self, verb: str) -> str:
        return f"/{verb}" if self._model is None else f"/v1/models/{self._model}/{verb}"

    def _named_path(self, rest: str) -> str:
        if self._model is None:
            models = self.models()
            if len(models) != 1:
                names = [model["model"] for model in models]
                raise ApiError(404, {"title": "Unknown model", "detail": f"Name one of the models {names}."})
            self._model = models[0]["model"]
        return f"/v1/models/{self._model}/{rest}"

    def _call(self, method: str, path: str, *, retry: bool = False, **options: Any) -> dict[str, Any]:
        for attempt in range(_RETRIES + 1):
            last = attempt == _RETRIES or not retry
            try:
                response = self._http.request(method, path, **options)
            except httpx.TransportError as error:
                if last or not isinstance(error, httpx.ConnectError | httpx.RemoteProtocolError | httpx.ReadError):
                    raise UnreachableError(f"No service answers at {self._http.base_url}: {error}") from error
            else:
                if response.status_code not in _RETRIED or last:
                    return _document(response)
            time.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _document(response: httpx.Response) -> dict[str, Any]:
    try:
        document: dict[str, Any] = response.json()
    except ValueError:
        document = {"title": f"HTTP {response.status_code}", "detail": response.text[:500]}
    if response.is_success:
        return document
    raise ApiError(response.status_code, document)
