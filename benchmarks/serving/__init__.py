"""The service beside other Python servers: `python -m benchmarks.serving --help`."""
