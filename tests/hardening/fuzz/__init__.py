"""Fuzz targets: readers of hostile bytes, as functions that return, or raise an error that is not a refusal."""
