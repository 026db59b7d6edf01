"""The blocking client: each method of AsyncClient, run to its end without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from candor.async_client import DEFAULT_URL, AsyncClient
from candor.exchange import BlockingHttp

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return a blocking version of a method of AsyncClient, with its signature and docstring."""

    @wraps(method)
    def call(self: Client, /, *arguments: P.args, **options: P.kwargs) -> T:
        return _finish(method(self._client, *arguments, **options))

    return call


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that is never suspended, because everything it awaits blocks."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise RuntimeError("a blocking call was suspended")


class Client:
    """A client of one service that blocks. AsyncClient documents the methods and their arguments.

    Example:
        with Client("http://127.0.0.1:8000") as candor:
            answer = candor.predict_file("examples/seven.png", policy="auto-read")
            candor.feedback([{"prediction_id": answer.predictions[0].prediction_id, "label": "7"}])
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        model: str | None = None,
        timeout_s: float = 70.0,
        retries: int = 3,
    ) -> None:
        self._client = AsyncClient(
            url, api_key=api_key, model=model, timeout_s=timeout_s, retries=retries, http=BlockingHttp
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    close = _blocking(AsyncClient.close)
    predict = _blocking(AsyncClient.predict)
    predict_labels = _blocking(AsyncClient.predict_labels)
    predict_images = _blocking(AsyncClient.predict_images)
    predict_file = _blocking(AsyncClient.predict_file)
    feedback = _blocking(AsyncClient.feedback)
    feedback_labels = _blocking(AsyncClient.feedback_labels)
    feedback_file = _blocking(AsyncClient.feedback_file)
    erase = _blocking(AsyncClient.erase)
    cases = _blocking(AsyncClient.cases)
    case = _blocking(AsyncClient.case)
    claim_cases = _blocking(AsyncClient.claim_cases)
    claim_case = _blocking(AsyncClient.claim_case)
    label_case = _blocking(AsyncClient.label_case)
    skip_case = _blocking(AsyncClient.skip_case)
    release_case = _blocking(AsyncClient.release_case)
    assign_case = _blocking(AsyncClient.assign_case)
    upload_labelled_set = _blocking(AsyncClient.upload_labelled_set)
    labelled_sets = _blocking(AsyncClient.labelled_sets)
    delete_labelled_set = _blocking(AsyncClient.delete_labelled_set)
    recalibrate = _blocking(AsyncClient.recalibrate)
    start_recalibration = _blocking(AsyncClient.start_recalibration)
    job = _blocking(AsyncClient.job)
    jobs = _blocking(AsyncClient.jobs)
    cancel = _blocking(AsyncClient.cancel)
    propose_job = _blocking(AsyncClient.propose_job)
    wait = _blocking(AsyncClient.wait)
    revisions = _blocking(AsyncClient.revisions)
    revision = _blocking(AsyncClient.revision)
    activate = _blocking(AsyncClient.activate)
    traffic_change = _blocking(AsyncClient.traffic_change)
    reject = _blocking(AsyncClient.reject)
    audit = _blocking(AsyncClient.audit)
    rollback = _blocking(AsyncClient.rollback)
    policy = _blocking(AsyncClient.policy)
    put_policy = _blocking(AsyncClient.put_policy)
    prior_shift = _blocking(AsyncClient.prior_shift)
    simulate = _blocking(AsyncClient.simulate)
    challengers = _blocking(AsyncClient.challengers)
    challenger = _blocking(AsyncClient.challenger)
    put_challenger = _blocking(AsyncClient.put_challenger)
    delete_challenger = _blocking(AsyncClient.delete_challenger)
    backtest = _blocking(AsyncClient.backtest)
    monitoring = _blocking(AsyncClient.monitoring)
    models = _blocking(AsyncClient.models)
    load = _blocking(AsyncClient.load)
    unload = _blocking(AsyncClient.unload)
    health = _blocking(AsyncClient.health)
    ready = _blocking(AsyncClient.ready)
