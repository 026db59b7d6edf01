"""The models that clients ask about while their service is killed, and how they ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx
import numpy as np
import numpy.typing as npt

from training import TrainConfig
from training.data.drift import dim

PATIENCE_S = 120.0
POLICIES = Path(__file__).parents[2] / "examples" / "policies"

Ask = Callable[[Sequence[int]], list[str] | None]
"""Predict rows, by number; return their ids, or None where the service has too much to do.

Raises httpx.TransportError where the connection breaks, and RuntimeError for any other answer."""


class Subject(Protocol):
    """A model, and rows of which the labels are known.

    Attributes:
        model: Its name.
        names: The label of each row.
        settings: What the service is started with, by variable.
        columns: The rows, as columns of a labelled set.
    """

    model: str
    names: list[str]
    settings: dict[str, str]
    columns: Mapping[str, npt.NDArray[Any]]

    def asking(self, url: str) -> Any:
        """Open connections to a service; a context manager that returns an `Ask`."""


class Digits:
    """Images under a dying lamp, on which a recalibration has something to repair; predictions by HTTP.

    Args:
        bundles: Folder of bundles with a model called "digits".
    """

    model = "digits"

    def __init__(self, bundles: Path) -> None:
        self.images, self.names = dimmed_digits()
        self.columns: Mapping[str, npt.NDArray[Any]] = {"inputs": self.images}
        self.settings = {"CANDOR_BUNDLES": str(bundles.resolve()), "CANDOR_POLICIES": str(POLICIES)}

    @contextmanager
    def asking(self, url: str) -> Iterator[Ask]:
        """Ask by JSON."""
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:

            def ask(which: Sequence[int]) -> list[str] | None:
                answer = http.post("/predict?policy=auto-read", json={"inputs": self.images[which].tolist()})
                if answer.status_code in (503, 504):
                    return None
                if answer.status_code != 200:
                    raise RuntimeError(f"{answer.status_code} {answer.text[:300]}")
                return [row["prediction_id"] for row in answer.json()["predictions"]]

            yield ask


class Payments:
    """A table for trees of LightGBM, imported by `candor.import_model`; predictions by gRPC.

    Args:
        folder: An empty folder for its bundle.
        port: The service's port for gRPC.
        seed: Of the rows.
    """

    model = "payments"

    def __init__(self, folder: Path, port: int, seed: int = 2) -> None:
        import lightgbm
        import pandas as pd  # type: ignore[import-untyped]

        import candor

        draw = np.random.default_rng(seed)
        count = 1_500
        countries = draw.choice(["at", "de", "fr"], count)
        amount, hour = draw.lognormal(3, 1, count), draw.integers(0, 24, count).astype(float)
        score = (countries == "fr") + hour / 24 + np.log(amount) / 3 + draw.normal(size=count) / 2
        labels = np.where(score > 2, "fraud", "genuine")
        frame = pd.DataFrame({"amount": amount, "country": pd.Categorical(countries), "hour": hour})
        half = count // 2
        trees = lightgbm.LGBMClassifier(n_estimators=20, verbosity=-1, n_jobs=1).fit(frame[:half], labels[:half])
        candor.import_model(
            trees, frame[half:], labels[half:], name=self.model, out=folder, calibrator="temperature", seed=seed
        )
        self.names = labels.tolist()
        self.columns: Mapping[str, npt.NDArray[Any]] = {"amount": amount, "country": countries, "hour": hour}
        self.settings = {"CANDOR_BUNDLES": str(folder), "CANDOR_GRPC_PORT": str(port)}
        self._target = f"127.0.0.1:{port}"

    @contextmanager
    def asking(self, url: str) -> Iterator[Ask]:
        """Ask by ModelInfer."""
        import grpc

        from service.grpc.messages import SERVICE, message

        with grpc.insecure_channel(self._target) as channel:
            infer = channel.unary_unary(f"/{SERVICE.full_name}/ModelInfer")

            def ask(which: Sequence[int]) -> list[str] | None:
                tensors = [self._tensor(name, values[which]) for name, values in self.columns.items()]
                request = message("ModelInferRequest")(model_name=self.model, inputs=tensors)
                try:
                    content = infer(request.SerializeToString(), timeout=PATIENCE_S)
                except grpc.RpcError as error:
                    if "candor-error" in dict(error.trailing_metadata() or ()):  # the service's own
                        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                            return None
                        raise RuntimeError(f"{error.code()} {error.details()}") from error
                    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                        raise httpx.TransportError(error.details() or "") from error
                    raise RuntimeError(f"{error.code()} {error.details()}") from error
                answer = message("ModelInferResponse").FromString(content)
                return str(answer.parameters["prediction_ids"].string_param).split(",")

            yield ask

    def _tensor(self, name: str, values: npt.NDArray[Any]) -> dict[str, Any]:
        given = {"name": name, "shape": [len(values), 1]}
        if values.dtype.kind == "U":
            return given | {"datatype": "BYTES", "contents": {"bytes_contents": [text.encode() for text in values]}}
        return given | {"datatype": "FP64", "contents": {"fp64_contents": values.tolist()}}


def dimmed_digits() -> tuple[npt.NDArray[np.uint8], list[str]]:
    """Return images under a dying lamp, on which a recalibration has something to repair, and their labels."""
    data, parts = TrainConfig().load()
    rows = parts.feedback
    return dim(np.asarray(data.inputs[rows], np.uint8), seed=7), [
        data.label_names[label] for label in data.labels[rows]
    ]
