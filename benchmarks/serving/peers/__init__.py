"""What runs in the peers' own environments: each file serves one ONNX model as its project's guide shows."""
