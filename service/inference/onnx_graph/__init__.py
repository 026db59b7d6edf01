"""Calibrators as ONNX graphs: for a GPU, on which the logits already are, and for servers that know no calibrator.

    calibrator_model(calibrator, classes)         → logits in, probabilities out
    calibrated_model(model, calibrator, classes)  → the classifier, its calibrator behind the logits

Requires the package `onnx` (the extras `gpu` and `export`), which no other part of the service imports.
"""

from service.inference.onnx_graph.models import OPSET, calibrated_model, calibrator_model

__all__ = ["OPSET", "calibrated_model", "calibrator_model"]
