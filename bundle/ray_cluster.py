"""A connection to a Ray cluster, for training and service alike."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_ANSWERS_WITHIN_S: Final = 5.0
_SETTINGS: Final = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # a frame of HTTP/2, of type 4
_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS
_QUIET: Final = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}


class NoClusterError(ConnectionError):
    """No Ray cluster answers at the address."""


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a Ray cluster for the length of a block; yields the module `ray`.

    Args:
        address: `HOST:PORT` of the cluster, or `auto` for the one of this machine.

    Raises:
        ImportError: Ray is not installed.
        NoClusterError: No cluster answers at this address.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    _check_answers(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise NoClusterError(str(error)) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise NoClusterError unless HOST:PORT speaks gRPC: Ray itself would try for a minute, or without end."""
    found = re.fullmatch(r"\[?([^/]+?)\]?:(\d+)", address)
    if found is None:
        return
    try:
        with socket.create_connection((found[1], int(found[2])), _ANSWERS_WITHIN_S) as probe:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                probe.settimeout(_ANSWERS_WITHIN_S)
                probe.sendall(_GREETING)
                if probe.recv(4)[3:] != _SETTINGS[3:4]:
                    raise NoClusterError("what listens there is not a Ray cluster")
    except (OSError, OverflowError) as error:
        raise NoClusterError(str(error)) from error


def gpus(ray: Any, device: str, workers: int = 1) -> int:
    """Return the GPUs of each worker, 0 or 1: one if the device is `cuda`, or `auto` and the cluster has enough."""
    if device == "auto":
        return int(ray.cluster_resources().get("GPU", 0) >= workers)
    return int(device == "cuda")
