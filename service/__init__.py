"""Serve calibrated predictions with certified decisions; never imports torch."""

import gc
import os

# ONNX Runtime reports to its makers, and leaves a file among the temporary ones, unless it is told not to before it is
# imported, wherever that is.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# The garbage collector's thresholds, for every process of the service: requests leave next to no cycles. With Python's
# own, a sixth of the start of a recalibration's process and a quarter of a worker's imports went into passing over
# modules, which stay.
gc.set_threshold(10_000, 20, 20)
