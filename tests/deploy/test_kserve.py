"""deploy/kserve: what KServe and Knative require of a runtime, and what Candor's image gives."""

from __future__ import annotations

import ast
import copy
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings

from .test_chart import KUBERNETES, VALUES, WORKER

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
    patience = yaml.safe_load((ROOT / "deploy/helm/candor/values.yaml").read_text())["startupSeconds"]
    assert container["livenessProbe"]["initialDelaySeconds"] >= patience, "a slow start is no reason for a restart"
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


def test_the_worker_beside_reads_the_bundles_of_the_samples_with_the_image_as_it_is() -> None:
    place = f"pvc://{WORKER['bundles']['existingClaim']}/{VALUES['bundles']['subPath']}"
    samples = [each["spec"]["predictor"]["model"]["storageUri"] for each in SERVICES]
    assert all(uri == place or uri.startswith(f"{place}/") for uri in samples)


@pytest.fixture(scope="module")
def fields() -> dict[str, dict[str, str]]:
    """The fields of KServe's resources and their types, from the source of its client, unimported."""
    kserve = importlib.util.find_spec("kserve")
    if kserve is None or kserve.origin is None:
        pytest.skip("make chart installs KServe's client")
    found = {}
    for file in (Path(kserve.origin).parent / "models").glob("v1*.py"):
        (kind,) = (node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef))
        tables = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in kind.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        names = tables["attribute_map"]
        found[kind.name] = {names[name]: of_type for name, of_type in tables["openapi_types"].items()}
    return found


SIMPLE = {"str": str, "int": int, "bool": bool}


def unknown(value: Any, of_type: str, fields: dict[str, dict[str, str]], where: str = "") -> list[str]:
    """Return the places where a value is not of KServe's type; Kubernetes' own types are left to its schemas."""
    if (item := re.fullmatch(r"list\[(.*)\]", of_type)) is not None:
        if not isinstance(value, list):
            return [f"{where}: not a list"]
        return [bad for at, each in enumerate(value) for bad in unknown(each, item[1], fields, f"{where}/{at}")]
    if of_type in SIMPLE:
        return [] if type(value) is SIMPLE[of_type] else [f"{where}: not {of_type}"]
    if of_type not in fields:
        return []
    of_name = fields[of_type]
    return [
        bad
        for name, each in value.items()
        for bad in (unknown(each, of_name[name], fields, f"{where}/{name}") if name in of_name else [f"{where}/{name}"])
    ]


@pytest.mark.parametrize("resource", [*RUNTIMES, *SERVICES], ids=lambda each: each["metadata"]["name"])
def test_kserve_knows_every_field(resource: dict[str, Any], fields: dict[str, dict[str, str]]) -> None:
    kind = resource["apiVersion"].rpartition("/")[2].capitalize() + resource["kind"]
    assert unknown(resource, kind, fields) == []
    mistaken = copy.deepcopy(resource)
    mistaken["spec"]["minReplica"] = 1
    assert unknown(mistaken, kind, fields) == ["/spec/minReplica"]


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: runtime["metadata"]["name"])
def test_the_pod_of_a_runtime_fits_kubernetes_schema(runtime: dict[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="make chart installs Kubernetes' schemas").validate
    pod = {name: runtime["spec"][name] for name in ("containers", "volumes")}
    for version in KUBERNETES:
        validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}, version, strict=True)
