"""Calibrators, calibration metrics and reliability data for classifiers: numpy and scipy only."""
