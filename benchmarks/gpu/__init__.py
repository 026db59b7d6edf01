"""Test and measure training and serving on an NVIDIA GPU: `make gpu`, or `python -m benchmarks.gpu --help`."""
