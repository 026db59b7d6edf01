"""What a Ray cluster cannot do is said; see also tests/service/test_ray.py and recalibration/test_ray_scoring.py."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from bundle.ray_cluster import NoClusterError
from service.errors import ConfigurationError
from service.inference import cluster as room
from service.inference.cluster import cluster


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_extra_is_named() -> None:
    with pytest.raises(ConfigurationError, match="Ray is not installed") as caught, cluster("auto", "--ray"):
        pass
    assert caught.value.where == "--ray"


def test_where_no_cluster_answers_the_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(address: str) -> None:
        raise NoClusterError("timed out")

    monkeypatch.setattr(room, "connected", refused)
    with pytest.raises(ConfigurationError, match="does not answer") as caught, cluster("head:6379", "CANDOR_REFIT_RAY"):
        pass
    assert (caught.value.where, caught.value.found) == ("CANDOR_REFIT_RAY", "head:6379: timed out")
