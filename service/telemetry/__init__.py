"""Metrics for Prometheus, traces and logs."""
