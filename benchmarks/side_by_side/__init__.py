"""How the measurement runs: its rows, data sets, environments, turns and report."""
