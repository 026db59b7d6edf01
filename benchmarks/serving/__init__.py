"""Compare the service with other Python servers: `python -m benchmarks.serving --help`."""
