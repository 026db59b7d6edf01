"""Predict the rows of a file through a running service."""
