"""Monitors that may be read at any time: does a certificate still hold, is a probability still calibrated."""
