"""The HTTP side of docker/smoke-test: each verb checks a running service, and exits 1 if the check fails.

The service is CANDOR_URL, the key CANDOR_API_KEY; what later checks need is kept in the folder SMOKE_WORK.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

MODEL = "/v1/models/digits"
ROWS, BATCH = 600, 100
CLIENTS = 8
WORK = Path(os.environ.get("SMOKE_WORK", "."))


def refused(http: httpx.Client) -> str:
    """Calls without a key or with a wrong key get 401 with a remedy."""
    for headers in ({"authorization": ""}, {"authorization": "Bearer cnd_000000000000_wrong"}):
        response = http.post("/predict", json={"inputs": []}, headers=headers)
        expect(response.status_code == 401, f"expected 401, found {response.status_code}: {response.text}")
        expect(bool(response.json().get("detail")), "the refusal says nothing")
    return "401 without a key and with a wrong one"


def image(http: httpx.Client, path: str) -> str:
    """An image gets a label, probabilities that sum to one and a decision."""
    headers = {"content-type": "image/png"}
    answer = ok(http.post("/predict", params={"policy": "auto-read"}, content=Path(path).read_bytes(), headers=headers))
    (prediction,) = answer["predictions"]
    total = sum(prediction["probabilities"].values())
    expect(abs(total - 1) < 1e-4, f"the probabilities sum to {total}")
    expect(prediction["decision"]["action"] in ("accept", "review", "block"), f"decision {prediction['decision']}")
    return f"{path}: {prediction['label']} at {prediction['confidence']:.3f}, {prediction['decision']['action']}"


def grpc(_: httpx.Client) -> str:
    """A digit is inferred over gRPC; without a key the call is refused."""
    import grpc as transport

    from service.grpc.messages import message

    request = message("ModelInferRequest")(
        model_name="digits", inputs=[{"name": "input", "datatype": "UINT8", "shape": [1, 8, 8, 1]}]
    )
    request.raw_input_contents.append(bytes(64))
    key = ("authorization", f"Bearer {os.environ['CANDOR_API_KEY']}")
    with transport.insecure_channel(f"127.0.0.1:{os.environ['CANDOR_GRPC_PORT']}") as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        answer = message("ModelInferResponse").FromString(infer(request.SerializeToString(), metadata=[key]))
        expect(answer.model_name == "digits" and len(answer.outputs) > 0, f"answer {answer}")
        try:
            infer(request.SerializeToString())
        except transport.RpcError as error:
            expect(error.code() is transport.StatusCode.UNAUTHENTICATED, f"refused with {error.code()}")
        else:
            expect(False, "a call without a key is answered")
    return f"{', '.join(output.name for output in answer.outputs)}; refused without a key"


def feedback(http: httpx.Client) -> str:
    """Real digits are predicted; their labels are stored and acknowledged."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = (digits.images[-ROWS:, :, :, None] * (255 / 16)).round().astype("uint8")
    labels = [str(label) for label in digits.target[-ROWS:]]
    items, right = [], 0
    for start in range(0, ROWS, BATCH):
        body = {"inputs": pixels[start : start + BATCH].tolist()}
        predictions = ok(http.post("/predict", params={"policy": "auto-read"}, json=body))["predictions"]
        for prediction, label in zip(predictions, labels[start : start + BATCH], strict=True):
            right += prediction["label"] == label
            items.append({"prediction_id": prediction["prediction_id"], "label": label, "source": "smoke"})
    receipt = ok(http.post("/feedback", json={"items": items}))
    expect(receipt["stored"] == ROWS, f"stored {receipt['stored']} of {ROWS}")
    (WORK / "items.json").write_text(json.dumps(items), encoding="utf-8")
    expect(right > 0.8 * ROWS, f"only {right} of {ROWS} right: this is not the digits model")
    return f"{ROWS} predictions ({right} right), {receipt['stored']} labels stored"


def dry_run(http: httpx.Client) -> str:
    """A dry run recalibrates on the labels, reports numbers and keeps nothing."""
    before = state(http)
    result = _refit(http, "dry_run")
    rows = sum(result["rows"][role] for role in ("fit", "certify", "gate"))
    expect(rows == ROWS, f"the recalibration saw {rows} of {ROWS} labels")
    expect(state(http) == before, "a dry run has changed the revisions")
    return f"{rows} rows; {result['summary']}"


def labelled_set(http: httpx.Client) -> str:
    """A file of labelled rows is stored, and deleted again."""
    row = {"inputs": [[[0]] * 8] * 8, "label": "7", "group": "smoke"}
    lines = "".join(json.dumps(row) + "\n" for _ in range(BATCH))
    headers = {"content-type": "application/x-ndjson"}
    stored = ok(http.post(f"{MODEL}/labelled-sets", content=lines, headers=headers))
    expect(stored["rows"] == BATCH, f"stored {stored}")
    deleted = http.delete(f"{MODEL}/labelled-sets/{stored['id']}")
    expect(deleted.is_success, f"not deleted: HTTP {deleted.status_code}: {deleted.text}")
    return f"{BATCH} rows stored and deleted"


def activate(http: httpx.Client) -> str:
    """A recalibration becomes a proposal, and an operator activates it."""
    proposal = _refit(http, "propose")["revision"]
    epoch = state(http)["epoch"]
    response = http.post(
        f"{MODEL}/revisions/{proposal}/activate",
        json={"reason": "smoke test", "accept_change": True},
        headers={"if-match": f'"{epoch}"'},
    )
    expect(ok(response)["active"] == proposal, "another revision is active")
    remember(http)
    return f"{proposal} is active, epoch {epoch + 1}"


def remember(http: httpx.Client) -> str:
    """Record the state that must survive."""
    (WORK / "state.json").write_text(json.dumps(state(http)), encoding="utf-8")
    return "noted"


def survived(http: httpx.Client) -> str:
    """The revisions are unchanged, the active one answers, and no label is missing."""
    expected = json.loads((WORK / "state.json").read_text(encoding="utf-8"))
    found = state(http)
    expect(found == expected, f"expected {expected}, found {found}")
    served = ok(http.get("/readyz"))["models"]["digits"]
    expect(served == expected["active"], f"{served} is served, not {expected['active']}")
    items = json.loads((WORK / "items.json").read_text(encoding="utf-8"))
    receipt = ok(http.post("/feedback", json={"items": items}))
    expect(receipt["duplicates"] == ROWS, f"{receipt['duplicates']} of {ROWS} labels were known")
    return f"{served} in service, {receipt['duplicates']} labels known"


def addresses(http: httpx.Client) -> str:
    """Health answers to HEAD, and the server of /v2 with and without a slash at the end, without a redirect."""
    for path in ("/livez", "/readyz", "/v2/health/live", "/v2/health/ready"):
        response = http.head(path)
        expect(response.status_code == 200 and not response.content, f"HEAD {path}: {response.status_code}")
    found = [ok(http.get(path, headers={"x-forwarded-proto": "https"}))["name"] for path in ("/v2", "/v2/")]
    expect(found == ["candor", "candor"], f"found {found}")
    return "HEAD on health; /v2 and /v2/ are one"


def unavailable(http: httpx.Client) -> str:
    """Without a replica, the gateway answers 503 as the service would: a client may try again."""
    for path, kind, key in (
        ("/predict", "application/problem+json", "detail"),
        ("/readyz", "application/problem+json", "detail"),
        ("/v2/models/digits/infer", "application/json", "error"),
    ):
        response = http.post(path, json={})
        expect(response.status_code == 503, f"{path}: {response.status_code} instead of 503: {response.text}")
        expect(response.headers["content-type"] == kind, f"{path}: {response.headers['content-type']}")
        expect(response.headers["retry-after"] == "1", f"{path}: no Retry-After")
        expect("No replica answered" in response.json()[key], f"{path}: {response.text}")
        expect(response.json().get("status", 503) == 503, f"{path}: {response.text}")
    return "503 without a replica, with Retry-After and a problem document"


def load(http: httpx.Client, seconds: str) -> str:
    """Several clients predict at once for some seconds, and each request is answered."""
    until = time.monotonic() + float(seconds)
    return _load(http, lambda: time.monotonic() < until)


def load_until(http: httpx.Client, file: str) -> str:
    """Several clients predict at once until a file exists, ten minutes at most, and each request is answered."""
    until = time.monotonic() + 600
    return _load(http, lambda: time.monotonic() < until and not Path(file).exists())


def _load(http: httpx.Client, wanted: Callable[[], bool]) -> str:
    began = time.monotonic()
    content, headers = Path("examples/seven.png").read_bytes(), {"content-type": "image/png"}

    def client() -> tuple[int, list[str]]:
        answered, failures = 0, []
        while wanted():
            try:
                response = http.post("/predict", content=content, headers=headers)
            except httpx.TransportError as error:
                failures.append(repr(error))
                continue
            answered += response.is_success
            if not response.is_success:
                failures.append(f"HTTP {response.status_code}: {response.text[:200]}")
        return answered, failures

    with ThreadPoolExecutor(CLIENTS) as clients:
        results = [future.result() for future in [clients.submit(client) for _ in range(CLIENTS)]]
    answered, failures = sum(count for count, _ in results), [failure for _, some in results for failure in some]
    expect(not failures, f"{len(failures)} of {answered + len(failures)} requests failed, such as {failures[:3]}")
    expect(answered > CLIENTS, "hardly any request was answered")
    return f"{answered} requests of {CLIENTS} clients in {time.monotonic() - began:.0f} s, none failed"


def scraped(http: httpx.Client, services: str) -> str:
    """Prometheus has found this number of services and reads of each how full PostgreSQL's disk is."""
    url = f"http://127.0.0.1:{os.environ['PROMETHEUS_PORT']}/api/v1/query"
    give_up, up = time.monotonic() + 60, None
    while up != int(services):
        expect(time.monotonic() < give_up, f"Prometheus reads {up} of {services} services")
        time.sleep(0.5)
        with contextlib.suppress(httpx.TransportError):
            query = "count(candor_state_free_bytes > 0)"
            result = http.get(url, params={"query": query}, headers={"authorization": ""}).json()
            up = sum(int(sample["value"][1]) for sample in result["data"]["result"]) if "data" in result else None
    return f"Prometheus reads {up} services, and how much room PostgreSQL's disk has"


def state(http: httpx.Client) -> dict[str, Any]:
    """Return the model's revisions from the state."""
    answer = ok(http.get(f"{MODEL}/revisions"))
    revisions = {item["id"]: item["state"] for item in answer["items"]}
    return {"active": answer["active"], "epoch": answer["epoch"], "revisions": revisions}


def ok(response: httpx.Response) -> dict[str, Any]:
    """Return the document of a successful response."""
    expect(response.is_success, f"{response.request.url.path}: HTTP {response.status_code}: {response.text[:500]}")
    document: dict[str, Any] = response.json()
    return document


def expect(condition: bool, complaint: str) -> None:
    """Exit with a message unless the condition holds."""
    if not condition:
        sys.exit(f"failed: {complaint}")


def _refit(http: httpx.Client, mode: str) -> dict[str, Any]:
    body = {"mode": mode, "calibrator": "temperature"}
    answer = ok(http.post("/recalibrate", json=body, headers={"prefer": "wait=60"}))
    give_up = time.monotonic() + 120
    while "result" in answer:  # a job; a result stands alone
        expect(answer["error"] is None, f"the recalibration failed: {answer['error']}")
        if answer["result"] is not None:
            result: dict[str, Any] = answer["result"]
            return result
        expect(time.monotonic() < give_up, f"job {answer['job']} takes too long")
        time.sleep(0.2)
        answer = ok(http.get(f"/v1/jobs/{answer['job']}"))
    return answer


VERBS: dict[str, Callable[..., str]] = {
    verb.__name__: verb
    for part in (
        (refused, image, grpc, feedback, dry_run, labelled_set, activate, remember, survived),
        (addresses, unavailable, load, load_until, scraped),
    )
    for verb in part
}


def main() -> None:
    """Run the verb from the command line."""
    verb, *arguments = sys.argv[1:]
    headers = {"authorization": f"Bearer {os.environ.get('CANDOR_API_KEY', '')}"}
    with httpx.Client(base_url=os.environ["CANDOR_URL"], headers=headers, timeout=90, trust_env=False) as http:
        sys.stdout.write(VERBS[verb](http, *arguments) + "\n")


if __name__ == "__main__":
    main()
