"""Serve calibrated predictions with certified decisions; never imports torch."""

import gc
import os

# ONNX Runtime sends telemetry to its makers and leaves a temporary file, unless this is set before its first import,
# wherever that is.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# The garbage collector's thresholds in every process of the service: requests leave almost no reference cycles. With
# Python's own thresholds, the collector took a sixth of the start of a recalibration's process, and a quarter of a
# worker's imports, to pass over modules, which stay.
gc.set_threshold(10_000, 20, 20)
