"""Policies, thresholds, certificates and the gate: pure numpy and scipy."""
