"""The main job with the Python client, against the digits of `make serve`.

    .venv/bin/python examples/python/main_job.py

CANDOR_URL selects another service; CANDOR_API_KEY is its key, if it requires one.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from candor import DEFAULT_URL, Client, ConflictError, InvalidRequestError

SEVEN = Path(__file__).resolve().parents[1] / "seven.png"
LABELLED = 400


def main() -> None:
    """Predict, send labels, recalibrate, change a policy, roll back."""
    url, key = os.environ.get("CANDOR_URL", DEFAULT_URL), os.environ.get("CANDOR_API_KEY")
    with Client(url, api_key=key, model="digits") as candor:
        answer = candor.predict_images([SEVEN, SEVEN.read_bytes()], policy="auto-read", top=2)
        for prediction in answer.predictions:
            print(prediction.label, prediction.confidence, prediction.probabilities, prediction.decision)

        images, truth = digits()
        answer = candor.predict(images, policy="auto-read", top=0)  # an array goes as .npy
        labels = [
            {"prediction_id": row.prediction_id, "label": label, "source": "reviewer"}
            for row, label in zip(answer.predictions, truth, strict=True)
        ]
        receipt = candor.feedback(labels)
        print(f"{receipt.stored} labels stored, {receipt.pending} waiting for their predictions to be written")

        try:
            refit = candor.recalibrate(mode="propose")
        except InvalidRequestError as error:  # for example, too few labels
            print(f"not recalibrated: {error} Found {error.found}, expected {error.expected}.")
        else:
            print(f"{refit.summary} (upper bound {refit.gate.upper:+.4f} nats at alpha {refit.gate.alpha:.4f})")

        bands = [{"action": "accept", "when": {"min_probability": 0.9}}, {"action": "review"}]
        proposal = candor.put_policy("careful", {"positive": "top", "bands": bands})
        epoch = candor.revisions(limit=1).epoch
        moved = candor.activate(proposal.id, epoch=epoch)
        print(f"{moved.active} is active, with the policies {candor.models()[0].policies}")
        try:
            candor.rollback(epoch=epoch)
        except ConflictError as error:
            print(f"refused: {error}")
        print(f"{candor.rollback(epoch=moved.epoch).active} is active again")


def digits() -> tuple[np.ndarray, list[str]]:
    """Return some of scikit-learn's digits, uint8 (N, 8, 8, 1), and their labels."""
    bunch = load_digits()
    images = np.round(bunch.images[-LABELLED:, ..., np.newaxis] * (255 / 16)).astype(np.uint8)
    return images, [str(label) for label in bunch.target[-LABELLED:]]


if __name__ == "__main__":
    main()
