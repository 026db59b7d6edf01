"""Servers for the peers' environments: each file serves an ONNX model as its project's guide shows."""
