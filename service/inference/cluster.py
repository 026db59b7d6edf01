"""The Ray cluster that scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bundle.ray_cluster import NoClusterError, connected
from service.errors import CandorError, ConfigurationError


@contextmanager
def cluster(address: str, named: str, *, remedy: str | None = None) -> Iterator[Any]:
    """Connect to a Ray cluster for the length of a block; yields the module `ray`.

    Args:
        address: Address of the cluster, `auto` for the one of this machine.
        named: Option or setting that named it, for errors.
        remedy: What to do after an error of Ray itself.

    Raises:
        ConfigurationError: Ray is not installed, or no cluster answers.
        CandorError: Raised in the block, or in a process of Ray.
    """
    try:
        with connected(address) as ray:
            try:
                yield ray
            except ray.exceptions.RayError as error:
                raise _own(error, remedy) from error
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise ConfigurationError(
            "Ray is not installed.", where=named, found=str(error), remedy="Install the extra `ray`."
        ) from error
    except NoClusterError as error:
        raise ConfigurationError(
            "The Ray cluster does not answer.", where=named, found=f"{address}: {error}"
        ) from error


def _own(error: BaseException, remedy: str | None) -> CandorError:
    """Return the error that ended the run, out of what Ray wraps around it."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, CandorError):
            return inner
        inner = getattr(inner, "cause", None) or inner.__cause__
    return CandorError("The run on Ray has failed.", found=str(error)[-500:], remedy=remedy)
