"""Fuzz targets: what reads hostile bytes, each as a function of bytes that returns, or raises what is no answer."""
