"""What the service survives: long runs against a running service, and fuzzing of what reads hostile bytes."""
