"""Train, calibrate and export CNN classifiers (torch)."""
