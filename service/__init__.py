"""Serve calibrated predictions with certified decisions; never imports torch."""

import os

# ONNX Runtime reports to its makers, and leaves a file among the temporary ones, unless it is told not to before it is
# imported, wherever that is.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
