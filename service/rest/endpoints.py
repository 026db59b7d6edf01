"""The endpoints that predict, by path."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from service.operations.decoding import Decoders
from service.operations.predicting import Predicting, Prediction
from service.rest import kserve, labels, predict
from service.rest.bodies import Scope
from service.rest.exchange import Written
from service.rest.paths import INFER, INSTANCES, MULTILABEL, Predicts
from service.serving.models import Models
from service.settings import Settings
from service.telemetry.metrics import Metrics


class OfAVersion(Predicting):
    """An endpoint at which a request may name the version of a model."""

    @abstractmethod
    def asked(self, scope: Scope, model_name: str | None, version: str | None) -> Prediction[Any, Written]:
        """Return the prediction that a request asks for, before its body is read. A version of None is the active one.

        Raises:
            CandorError: The request cannot be answered.
        """


class Endpoints:
    """Find out what a request asks for, whichever way it came.

    Args:
        models: Models of this process.
        settings: Limits and deadline.
        metrics: Counts requests.
        decoders: Threads for slow decoding.
        infer: Answers requests of the Open Inference Protocol.
    """

    def __init__(
        self, models: Models, settings: Settings, metrics: Metrics, decoders: Decoders, infer: OfAVersion
    ) -> None:
        self._predict = predict.Predict(models, settings, metrics, decoders)
        self._labels = labels.PredictLabels(models, settings, metrics, decoders)
        self._infer = infer
        self._instances = kserve.PredictInstances(models, settings, metrics, decoders)

    def asked(self, path: Predicts, scope: Scope) -> tuple[Predicting, Prediction[Any, Written]]:
        """Return the prediction that a request asks for, before its body is read.

        Raises:
            CandorError: The request cannot be answered.
        """
        if path.protocol is INFER:
            return self._infer, self._infer.asked(scope, path.model, path.version)
        if path.protocol is MULTILABEL:
            return self._labels, self._labels.asked(scope, path.model)
        if path.protocol is INSTANCES:
            return self._instances, self._instances.asked(scope, path.model)
        return self._predict, self._predict.asked(scope, path.model)
