"""deploy/kserve: what KServe and Knative require of a runtime, and what Candor's image gives."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kserve"
RUNTIMES: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "runtimes.yaml").read_text()))
SERVICES: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "inference-services.yaml").read_text()))
PORTS = {"v2": ("http1", 8080), "grpc-v2": ("h2c", 9000)}  # the names that Knative knows


def container_of(runtime: dict[str, Any]) -> dict[str, Any]:
    (container,) = runtime["spec"]["containers"]
    assert container["name"] == "kserve-container", "the one that KServe fills in"
    found: dict[str, Any] = container
    return found


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: runtime["metadata"]["name"])
def test_a_runtime_has_one_protocol_and_its_port(runtime: dict[str, Any]) -> None:
    assert (runtime["apiVersion"], runtime["kind"]) == ("serving.kserve.io/v1alpha1", "ClusterServingRuntime")
    (protocol,) = runtime["spec"]["protocolVersions"]
    (port,) = container_of(runtime)["ports"]
    assert (port["name"], port["containerPort"]) == PORTS[protocol]
    given = {each["name"]: each.get("value") for each in container_of(runtime)["env"]}
    assert (given["CANDOR_PORT"], given["CANDOR_GRPC_PORT"]) == ("8080", "9000")


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: runtime["metadata"]["name"])
def test_a_runtime_is_confined_and_only_serves(runtime: dict[str, Any]) -> None:
    container = container_of(runtime)
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is security["runAsNonRoot"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert (security["capabilities"], security["runAsUser"]) == ({"drop": ["ALL"]}, 10001)
    given = {each["name"].removeprefix("CANDOR_").lower(): each.get("value") for each in container["env"]}
    assert given.keys() <= Settings.model_fields.keys()
    settings = Settings.model_validate({name: value for name, value in given.items() if value is not None})
    assert (settings.bundles, settings.background) == ("/mnt/models", False)
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        each["name"] for each in runtime["spec"]["volumes"]
    }


def test_the_runtimes_differ_in_their_port_only() -> None:
    plain = copy.deepcopy(RUNTIMES)
    for runtime in plain:
        del runtime["metadata"]["name"], runtime["spec"]["protocolVersions"]
        for part in ("ports", "readinessProbe", "livenessProbe"):
            del container_of(runtime)[part]
    assert plain[0] == plain[1]


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service["metadata"]["name"])
def test_a_sample_finds_a_runtime_and_keeps_a_replica(service: dict[str, Any]) -> None:
    predictor = service["spec"]["predictor"]
    assert predictor["minReplicas"] >= 1
    runtimes = [
        runtime
        for runtime in RUNTIMES
        if predictor["model"]["protocolVersion"] in runtime["spec"]["protocolVersions"]
        and predictor["model"]["modelFormat"]["name"] == runtime["spec"]["supportedModelFormats"][0]["name"]
    ]
    assert len(runtimes) == 1
