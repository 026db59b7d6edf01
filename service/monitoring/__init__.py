"""Anytime-valid monitors: one for each certificate, one for the calibration."""
