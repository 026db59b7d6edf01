"""Measure the same work without a service, in a separate process: ONNX Runtime, calibration and decision.

    python -m benchmarks.serving.in_process FOLDER SECONDS THREADS

Prints one JSON object: images per second in batches of 1 and 32; microseconds for one row's calibration and
decision.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import yaml

import bundle
from benchmarks.serving.model import LENET
from calibrators import CALIBRATORS
from service.decisions.decide import decide_rows
from service.decisions.policy import parse_policy
from service.decisions.solve import solve_on_reference
from service.decisions.solved import SolvedPolicy


def main() -> None:
    folder, seconds, threads = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    verified = bundle.verify(folder / "bundles" / LENET / "1")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(verified.model_bytes, options, providers=["CPUExecutionProvider"])
    images = np.random.default_rng(0).integers(0, 256, (32, 32, 32, 3)).astype(np.uint8)
    one, many = images[:1], images
    row = session.run(["logits"], {"input": one})[0]
    calibrator = CALIBRATORS[verified.calibrator.name].from_dict(verified.calibrator.to_dict())
    document = yaml.safe_load((folder / "policies" / LENET / "default.yaml").read_text(encoding="utf-8"))
    solved: SolvedPolicy = solve_on_reference(
        parse_policy(document), version=1, bundle=verified, calibrator=calibrator, look=1
    )
    labels = verified.manifest.labels

    def decide() -> None:
        probabilities = calibrator.predict_proba(row)
        top, confidence = calibrator.top_label(row, probabilities)
        decide_rows(solved, labels, row, probabilities, top, confidence)

    rates = {
        "batches_of_1": _rate(lambda: session.run(["logits"], {"input": one}), seconds),
        "batches_of_32": 32 * _rate(lambda: session.run(["logits"], {"input": many}), seconds),
        "decision_us": 1e6 / _rate(decide, seconds),
    }
    print(json.dumps(rates))


def _rate(call: Callable[[], object], seconds: float) -> float:
    """Return calls per second, after a warm-up of a tenth of the time."""
    end = time.perf_counter() + seconds / 10
    while time.perf_counter() < end:
        call()
    began, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < began + seconds:
        call()
        count += 1
    return count / (now - began)


if __name__ == "__main__":
    main()
