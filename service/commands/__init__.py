"""The verbs of the `candor` command: those that work on this machine, and those that are HTTP calls."""
