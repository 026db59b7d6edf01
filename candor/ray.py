"""Candor on Ray Serve: `candor.ray.app` is the application, as in `serve run candor.ray:app`.

It requires the application's own package with the extra `ray` on every node:
`pip install ./library '.[serve,postgres,cpu,ray]'` in a checkout of Candor.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    app: Any

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    # Built when it is asked for: it reads the settings of the environment and lists the bundles.
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module("service.ray").application()
    except ModuleNotFoundError as error:
        raise ImportError(
            f"candor.ray requires {error.name}, which is not installed. "
            "In a checkout of Candor, run on every node: pip install ./library '.[serve,postgres,cpu,ray]'"
        ) from error
