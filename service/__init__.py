"""Serve calibrated predictions with certified decisions; never imports torch."""
