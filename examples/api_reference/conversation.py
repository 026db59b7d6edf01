"""The worked examples: a conversation with a running service that calls every operation."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from candor import Client

SHOWN_URL = "http://127.0.0.1:8000"
"""URL in the printed commands; the service listens on a free port."""

LABELLED = 1000
UPLOADED = 120
_CURL = shutil.which("curl") or "curl"
_PATIENCE_S = 300
_MODEL = "/v1/models/{model}"
_VERSION = "/v2/models/{model}/versions/{version}"


@dataclass(frozen=True)
class Exchange:
    """One command and its answer.

    Attributes:
        operation: Method and path as the OpenAPI document names them.
        said: Description of the example in one sentence; empty if the operation's own is enough.
        command: The curl command as run, except for the service's port.
        status: Status of the answer.
        headers: Headers of the answer, by lower-case name.
        body: Body of the answer.
    """

    operation: tuple[str, str]
    said: str
    command: str
    status: HTTPStatus
    headers: dict[str, str]
    body: str


@dataclass
class Conversation:
    """Calls a running service with curl and keeps commands and answers.

    Attributes:
        url: URL of the service.
        folder: Folder of the files to send.
        exchanges: Commands and answers, in order.
    """

    url: str
    folder: Path
    exchanges: list[Exchange] = field(default_factory=list)

    def ask(self, method: str, path: str, command: str, said: str = "") -> Any:
        """Run a curl command, keep it with its answer, and return the answer's JSON (None for other content).

        Raises:
            ValueError: The request failed and `said` does not begin with "Refused", or the reverse.
        """
        words = shlex.split(command.replace("\\\n", " ").replace(SHOWN_URL, self.url))
        done = subprocess.run(
            [_CURL, "--silent", "--show-error", "--include", *words[1:]],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE_S,
        )
        head, _, body = done.stdout.partition("\n\n")
        while head.startswith("HTTP/1.1 100"):
            head, _, body = body.partition("\n\n")
        first, *lines = head.splitlines()
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        status = HTTPStatus(int(first.split()[1]))
        if said.startswith("Refused") != (status >= HTTPStatus.BAD_REQUEST):
            raise ValueError(f"{command}\n{head}\n{body}")
        self.exchanges.append(Exchange((method, path), said, command, status, headers, body))
        return json.loads(body) if "json" in headers["content-type"] else None

    def post(self, path: str, name: str, *, said: str = "", query: str = "", **given: Any) -> Any:
        """POST a JSON document or nothing, with `headers`; see `ask`."""
        headers: dict[str, str] = given.pop("headers", {})
        words = ["-X POST"] if "body" not in given else ["-H 'Content-Type: application/json'"]
        words += [f"-H '{key}: {value}'" for key, value in headers.items()]
        if "body" in given:
            words += [f"\\\n  -d '{json.dumps(given['body'])}'"]
        return self.ask("POST", name, f"curl {' '.join(words)} \\\n  '{SHOWN_URL}{path}{query}'", said)

    def get(self, path: str, name: str, said: str = "", query: str = "") -> Any:
        """GET a path; see `ask`."""
        return self.ask("GET", name, f"curl '{SHOWN_URL}{path}{query}'", said)


def hold(talk: Conversation, seven: Path) -> None:
    """Hold the whole conversation, with a service that has just started on the bundle of digits.

    Args:
        talk: The conversation; its folder gets the files to send.
        seven: An image of a seven.
    """
    (talk.folder / "seven.png").write_bytes(seven.read_bytes())
    images, labels = _dimmed_digits()
    _operation(talk)
    _predict(talk)
    _feedback(talk)
    _comments(talk)
    with Client(talk.url, model="digits") as candor:
        rows = candor.predict(images, policy="auto-read", top=0).predictions
        items = [
            {"prediction_id": row.prediction_id, "label": label, "source": "reviewer"}
            for row, label in zip(rows, labels, strict=True)
        ]
        candor.feedback(items)
    _recalibrate(talk)
    _revisions(talk)
    _policies(talk)
    talk.get("/v1/models/digits/monitoring", f"{_MODEL}/monitoring")
    _challengers(talk)
    _cases(talk, images)
    _labelled_sets(talk, images, labels)
    talk.post(
        "/v1/models/digits/prior-shift",
        f"{_MODEL}/prior-shift",
        body={"target": {"7": 0.3}},
        said="Sevens are known to be 30 % of the traffic now; a dry run keeps nothing.",
    )
    talk.post("/v1/models/digits/erase", f"{_MODEL}/erase", body={"group": "form-12"})
    _inference_protocol(talk)
    for verb in ("unload", "load"):
        talk.post(f"/v1/models/digits/{verb}", f"{_MODEL}/{verb}")
    _repository(talk)


def _dimmed_digits() -> tuple[NDArray[np.uint8], list[str]]:
    """Return dimmed digits, uint8 (N, 8, 8, 1): the active model is mostly right, but underconfident."""
    bunch = load_digits()
    lit = bunch.images[-LABELLED:, ..., np.newaxis] * (255 / 16)
    grain = np.random.default_rng(7).normal(0.0, 13.0, lit.shape)
    images = np.clip(np.round(0.25 * lit + grain), 0, 255).astype(np.uint8)
    return images, [str(label) for label in bunch.target[-LABELLED:]]


def _operation(talk: Conversation) -> None:
    for path in ("/livez", "/readyz", "/metrics"):
        talk.get(path, path)
    talk.get("/v1/models", "/v1/models")
    talk.get("/v1/models/digits", _MODEL)


def _predict(talk: Conversation) -> None:
    long = f"{_MODEL}/predict"
    image = "curl -H 'Content-Type: image/png' --data-binary @seven.png \\\n  "
    talk.ask(
        "POST",
        "/predict",
        f"{image}'{SHOWN_URL}/predict?policy=auto-read&top=2'",
        "An image, decided by a policy; the two largest probabilities.",
    )
    talk.ask(
        "POST",
        long,
        "curl -F inputs=@seven.png -F inputs=@seven.png \\\n  -F references=scan-1 -F references=scan-2 "
        f"-F groups=form-12 -F groups=form-12 \\\n  '{SHOWN_URL}/v1/models/digits/predict?policy=flag-zero&top=1'",
        "Two images of one form, with your own references.",
    )
    talk.post(
        "/v1/models/digits/predict",
        long,
        body={"inputs": [[[0, 16], [255, 0]]]},
        said="Refused: the array has the wrong shape.",
    )
    talk.ask("POST", long, f"{image}'{SHOWN_URL}/v1/models/letters/predict'", "Refused: the model is unknown.")
    diagonal = (255 * np.eye(8, dtype=np.uint8)).tolist()
    talk.post("/v1/models/digits:predict", f"{_MODEL}:predict", body={"instances": [diagonal]})


def _comments(talk: Conversation) -> None:
    path, name = "/v1/multilabel/comments", "/v1/multilabel/{model}"
    talk.get("/v1/multilabel", "/v1/multilabel")
    talk.post(f"{path}/predict", f"{name}/predict", body={"scores": [[0.9, 0.2]], "references": ["post-7"]})
    items = [{"reference": "post-7", "labels": {"toxic": True, "insult": None}, "source": "reviewer"}]
    talk.post(f"{path}/feedback", f"{name}/feedback", body={"items": items}, said="Whether it is an insult is unknown.")


def _feedback(talk: Conversation) -> None:
    items = [{"reference": "scan-1", "label": "7", "source": "reviewer"}]
    talk.post("/feedback", "/feedback", body={"items": items}, said="By your own reference, to the default model.")
    with (talk.folder / "labels.csv").open("w", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["reference", "label"], ["scan-1", "7"], ["scan-2", "7"]])
    talk.ask(
        "POST",
        f"{_MODEL}/feedback",
        "curl -H 'Content-Type: text/csv' -H 'Idempotency-Key: may-4' --data-binary @labels.csv \\\n  "
        f"'{SHOWN_URL}/v1/models/digits/feedback'",
        "A file with the lines `reference,label`, `scan-1,7` and `scan-2,7`; the first label is already stored.",
    )
    talk.post(
        "/v1/models/digits/feedback",
        f"{_MODEL}/feedback",
        body={"items": [{"reference": "scan-2", "label": "seven"}]},
        said="Refused, and nothing is stored: the model does not have this label.",
    )


def _recalibrate(talk: Conversation) -> None:
    job = talk.post(
        "/v1/models/digits/recalibrate",
        f"{_MODEL}/recalibrate",
        headers={"Prefer": "wait=60"},
        body={"mode": "propose"},
        said=f"Recalibrate on {LABELLED} labelled predictions and wait. It passes the gate and becomes a proposal.",
    )["job"]
    if talk.exchanges[-1].status == HTTPStatus.ACCEPTED:  # this machine is slower than the example's reader
        waited = json.dumps(_ended(talk, job)["result"])
        talk.exchanges[-1] = replace(talk.exchanges[-1], status=HTTPStatus.OK, body=waited)
    dry = talk.post("/recalibrate", "/recalibrate", body={"mode": "dry_run"}, said="Do not wait for the job.")["job"]
    with Client(talk.url, model="digits") as candor:
        second = candor.start_recalibration(mode="dry_run").job
        talk.ask("DELETE", "/v1/jobs/{job}", f"curl -X DELETE {SHOWN_URL}/v1/jobs/{second}", "Cancel a queued job.")
    _ended(talk, dry)
    talk.get(f"/v1/jobs/{dry}", "/v1/jobs/{job}", "A finished dry run.")
    talk.get("/v1/jobs", "/v1/jobs", query="?limit=2")
    talk.post(f"/v1/jobs/{dry}/propose", "/v1/jobs/{job}/propose", said="Keep the dry run's result as a proposal.")


def _ended(talk: Conversation, job: str) -> dict[str, Any]:
    """Wait until a job is done, and return its document."""
    give_up = time.monotonic() + _PATIENCE_S
    with httpx.Client(base_url=talk.url, timeout=_PATIENCE_S) as http:
        while time.monotonic() < give_up:
            document: dict[str, Any] = http.get(f"/v1/jobs/{job}").json()
            if document["state"] == "done":
                return document
            time.sleep(0.05)
    raise TimeoutError(f"{job} is not done: {document}")


def _revisions(talk: Conversation) -> None:
    of_model, one = "/v1/models/digits", f"{_MODEL}/revisions/{{revision}}"
    epoch = talk.get(f"{of_model}/revisions", f"{_MODEL}/revisions")["epoch"]
    talk.get(f"{of_model}/revisions/r2", one)
    talk.get(f"{of_model}/revisions/r2/traffic", f"{one}/traffic")
    talk.post(f"{of_model}/revisions/r2/activate", f"{one}/activate", said="Refused: `If-Match` is missing.")
    moved = talk.post(
        f"{of_model}/revisions/r2/activate",
        f"{one}/activate",
        headers={"If-Match": f'"{epoch}"'},
        body={"accept_change": True, "reason": "the lamp is dim"},
        said="With the `ETag` of the revisions, whatever it does to the traffic.",
    )
    talk.post(f"{of_model}/revisions/r3/reject", f"{one}/reject", body={"reason": "same as r2, which is active"})
    talk.post(f"{of_model}/rollback", f"{_MODEL}/rollback", headers={"If-Match": f'"{moved["epoch"]}"'})
    talk.get(f"{of_model}/audit", f"{_MODEL}/audit", query="?limit=3")


def _policies(talk: Conversation) -> None:
    of_model, one = "/v1/models/digits/policies", f"{_MODEL}/policies/{{policy}}"
    talk.get(f"{of_model}/auto-read", one)
    careful = {
        "positive": "top",
        "bands": [{"action": "accept", "when": {"min_probability": 0.9}}, {"action": "review"}],
    }
    talk.ask(
        "PUT",
        one,
        f"curl -X PUT -H 'Content-Type: application/json' \\\n  -d '{json.dumps(careful)}' \\\n  "
        f"{SHOWN_URL}{of_model}/careful",
    )
    sevens = {"positive": "7", "bands": [{"action": "flag", "when": {"min_precision": 0.9}}, {"action": "allow"}]}
    talk.post(
        f"{of_model}/sevens/simulate",
        f"{one}/simulate",
        body={"document": sevens, "against": "auto-read", "flips": 1},
    )
    talk.post(f"{of_model}/sevens/backtest", f"{one}/backtest", body={"document": sevens, "against": "auto-read"})


def _cases(talk: Conversation, images: NDArray[np.uint8]) -> None:
    reviewed = {
        "positive": "top",
        "bands": [{"action": "accept", "when": {"min_probability": 0.999}}, {"action": "review"}],
        "review": {"due": "24h"},
    }
    with Client(talk.url, model="digits") as candor:
        proposed = candor.put_policy("checked", reviewed)
        epoch = candor.revisions().epoch
        candor.activate(proposed.id, epoch=epoch, reason="people read what is unsure", accept_change=True)
        candor.predict(images[:100], policy="checked")
        until = time.monotonic() + _PATIENCE_S
        while len(items := candor.cases().items) < 3 and time.monotonic() < until:
            time.sleep(0.05)  # the log is written behind the answer
    of_model, one = "/v1/models/digits/cases", f"{_MODEL}/cases/{{case}}"
    first, second, third = (f"{of_model}/{item.id}" for item in items[:3])
    talk.get(of_model, f"{_MODEL}/cases", query="?limit=1")
    talk.get(first, one)
    talk.post(f"{second}/assign", f"{one}/assign", body={"to": "ana"})
    talk.post(f"{of_model}/claim", f"{_MODEL}/cases/claim", body={"count": 1})
    talk.post(f"{third}/claim", f"{one}/claim")
    talk.post(f"{third}/release", f"{one}/release")
    talk.post(f"{first}/label", f"{one}/label", body={"label": "7"})
    talk.post(f"{third}/skip", f"{one}/skip", body={"reason": "the image is too dark"})


def _challengers(talk: Conversation) -> None:
    of_model, one = "/v1/models/digits/challengers", f"{_MODEL}/challengers/{{challenger}}"
    body = json.dumps({"revision": "r2"})
    put = f"curl -X PUT -H 'Content-Type: application/json' \\\n  -d '{body}' \\\n  {SHOWN_URL}{of_model}/refit"
    talk.ask("PUT", one, put, "r2 has the active model file, so its calibrator is compared on logged scores.")
    talk.get(of_model, f"{_MODEL}/challengers")
    talk.get(f"{of_model}/refit", one, "No prediction since then is old enough for its label.")
    talk.ask("DELETE", one, f"curl -X DELETE {SHOWN_URL}{of_model}/refit")


def _labelled_sets(talk: Conversation, images: NDArray[np.uint8], labels: Iterable[str]) -> None:
    with (talk.folder / "labelled.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["label", "inputs"])
        for label, image in zip(labels, images[:UPLOADED], strict=False):
            rows.writerow([label, json.dumps(image.tolist(), separators=(",", ":"))])
    path, name = "/v1/models/digits/labelled-sets", f"{_MODEL}/labelled-sets"
    talk.ask(
        "POST",
        name,
        f"curl -H 'Content-Type: text/csv' --data-binary @labelled.csv \\\n  '{SHOWN_URL}{path}?represents=traffic'",
        f"A file of {UPLOADED} rows with the columns `label` and `inputs`.",
    )
    talk.get(path, name)
    talk.get(f"{path}/ls1", f"{name}/{{labelled_set}}")
    talk.ask("DELETE", f"{name}/{{labelled_set}}", f"curl -X DELETE {SHOWN_URL}{path}/ls1")


def _inference_protocol(talk: Conversation) -> None:
    for path in ("/v2", "/v2/health/live", "/v2/health/ready"):
        talk.get(path, path)
    image = (255 * np.eye(8, dtype=np.uint8)).ravel().tolist()
    tensor = {"name": "input", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": image}
    asked = {
        "id": "42",
        "inputs": [tensor],
        "outputs": [{"name": "probabilities", "parameters": {"classification": 2}}],
    }
    for path, name in (("/v2/models/digits", "/v2/models/{model}"), ("/v2/models/digits/versions/1", _VERSION)):
        talk.post(f"{path}/infer", f"{name}/infer", body=asked)
        for rest in ("", "/ready", "/config", "/stats"):
            talk.get(f"{path}{rest}", f"{name}{rest}")
    talk.get("/v2/models/letters", "/v2/models/{model}", "Refused, with the protocol's error document.")
    talk.get("/v2/models/stats", "/v2/models/stats")


def _repository(talk: Conversation) -> None:
    talk.post("/v2/repository/index", "/v2/repository/index", body={"ready": True})
    for verb in ("unload", "load"):
        talk.post(f"/v2/repository/models/digits/{verb}", f"/v2/repository/models/{{model}}/{verb}")
