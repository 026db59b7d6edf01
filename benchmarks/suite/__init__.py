"""Held-out logits of real and synthetic classifiers, to compare calibrators on (`python -m benchmarks.suite`)."""
