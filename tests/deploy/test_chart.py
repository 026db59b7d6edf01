"""The Helm chart, rendered by `helm`, or by tests/deploy/render.go, and checked against Kubernetes' own schemas.

`make chart` installs the schemas. Without a renderer or schemas, only what needs neither is tested.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from sqlalchemy import make_url

from service.settings import Settings
from service.state.keys import SCOPES

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "candor"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
DEBIAN = Path("/usr/share/gocode")
KUBERNETES = ("1.27", "1.30", "1.34")  # the oldest of the chart, and later ones
CUSTOM = {"ServiceMonitor", "PrometheusRule", "HTTPRoute", "GRPCRoute"}

LEAST: dict[str, Any] = {
    "postgresql": {"host": "postgres.databases", "existingSecret": "candor-database"},
    "keys": {"existingSecret": "candor-keys"},
    "bundles": {"url": "https://models.example/bundles"},
}
ALL: dict[str, Any] = {
    **LEAST,
    "keys": {"existingSecret": "candor-keys", "scopes": {"admin": ["admin"], "metrics": ["metrics"]}},
    "bundles": {"existingClaim": "models", "cacheSize": "10G"},
    "policies": {"enabled": True, "existingConfigMap": "policies", "entries": ["digits__auto-read.yaml"]},
    "webhook": {"url": "https://cases.example/candor", "existingSecret": "candor-webhook"},
    "settings": {"LOG_SAMPLE": "0.5"},
    "imagePullSecrets": [{"name": "registry"}],
    "gpu": {"enabled": True},
    "podLabels": {"team": "risk"},
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "high",
    "worker": {"replicas": 2, "settings": {"LOG_SAMPLE": "1"}},
    "ingress": {"enabled": True, "host": "candor.example", "className": "nginx", "tlsSecret": "tls"},
    "gateway": {
        "enabled": True,
        "parentRefs": [{"name": "edge"}],
        "hostnames": ["candor.example"],
        "grpc": {"hostnames": ["grpc.candor.example"]},
    },
    "autoscaling": {"enabled": True, "targetQueueRows": 200},
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {}}],
        "toDatabase": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "egress": [{"ports": [{"port": 443}]}],
    },
    "monitoring": {"serviceMonitor": {"enabled": True}, "rules": {"enabled": True}, "dashboards": {"enabled": True}},
}
OWNED = {
    **LEAST,
    "postgresql": {
        "host": "postgres.databases",
        "user": "candor_app",
        "existingSecret": "candor-app",
        "owner": {"user": "candor_owner", "existingSecret": "candor-owner", "passwordKey": "secret"},
    },
}
ALONE = {**LEAST, "worker": {"enabled": False}, "grpc": {"enabled": False}, "podDisruptionBudget": {"enabled": False}}
WORKER = yaml.safe_load((ROOT / "deploy" / "kserve" / "worker-values.yaml").read_text())
SHARED = {**LEAST, "bundles": {"url": "s3://models/bundles", "cacheHostPath": "/var/cache/candor"}}
EXTRA: dict[str, Any] = {
    **LEAST,
    "settings": {"AUDIT_KEY_FILE": "/secrets/more/audit"},
    "extraVolumes": [{"name": "more", "secret": {"secretName": "candor-more", "defaultMode": 288}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/secrets/more", "readOnly": True}],
    "extraEnv": [
        {"name": "AWS_REGION", "value": "eu-central-1"},
        {"name": "CANDOR_LOG_SINK", "valueFrom": {"configMapKeyRef": {"name": "places", "key": "log"}}},
    ],
    "extraEnvFrom": [{"secretRef": {"name": "object-store"}}],
}
VARIANTS = {
    "least": LEAST,
    "all": ALL,
    "alone": ALONE,
    "shared": SHARED,
    "owned": OWNED,
    "extra": EXTRA,
    "worker beside KServe": WORKER,
}

Render = Callable[[dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], subprocess.CompletedProcess[str]]:
    """Run the renderer on values."""
    if shutil.which("helm"):
        command = ["helm", "template", "prod", str(CHART), "--namespace", "models", "--values", "-"]
    elif shutil.which("go") and (DEBIAN / "src/github.com/Masterminds/sprig").is_dir():
        program = tmp_path_factory.mktemp("render") / "render"
        environment = os.environ | {"GO111MODULE": "off", "GOPATH": str(DEBIAN), "GOFLAGS": ""}
        subprocess.run(
            ["go", "build", "-o", program, Path(__file__).with_name("render.go")], env=environment, check=True
        )
        command = [str(program), str(CHART)]
    else:
        pytest.skip("no renderer: install helm, or Debian's packages that tests/deploy/render.go names")

    def run(values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def render(templates: Any) -> Render:
    def run(values: dict[str, Any]) -> list[dict[str, Any]]:
        jsonschema.validate(_over(VALUES, values), SCHEMA)  # as Helm does before it renders
        done = templates(values)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return run


def _over(values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for name, value in given.items():
        both = isinstance(value, dict) and isinstance(values.get(name), dict)
        merged[name] = _over(values[name], value) if both else value
    return merged


def one(documents: list[dict[str, Any]], kind: str, name: str = "prod-candor") -> dict[str, Any]:
    (found,) = [each for each in documents if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def containers(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    pod = deployment["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def test_the_values_fit_their_schema_and_strange_ones_do_not() -> None:
    for given in ({}, *VARIANTS.values()):
        jsonschema.validate(_over(VALUES, given), SCHEMA)
    strange: list[dict[str, Any]] = [
        {"replica": 3},
        {"settings": {"LOG_SAMPLE": 0.5}},
        {"keys": {"scopes": {"admin": ["root"]}}},
        {"service": {"port": 0}},
        {"bundles": {"cacheSize": "4 GB"}},
        {"image": {"pullPolicy": "Sometimes"}},
        {"extraVolumeMounts": [{"name": "more"}]},
        {"extraEnv": {"AWS_REGION": "eu-central-1"}},
        {"postgresql": {"parameters": "?sslmode=verify-full"}},
    ]
    for given in strange:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(_over(VALUES, given), SCHEMA)


def test_a_key_may_have_every_scope_of_the_service() -> None:
    scopes = SCHEMA["properties"]["keys"]["properties"]["scopes"]["additionalProperties"]["items"]["enum"]
    assert tuple(scopes) == SCOPES


def test_rules_and_dashboard_are_the_files_that_compose_uses() -> None:
    for name, source in (("alerts.yml", "prometheus/alerts.yml"), ("candor.json", "grafana/dashboards/candor.json")):
        assert (CHART / "files" / name).resolve() == ROOT / "docker" / source, "a link, which helm follows"


@pytest.mark.parametrize("variant", VARIANTS)
def test_kubernetes_accepts_it(render: Render, variant: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="make chart installs Kubernetes' schemas").validate
    for document in render(VARIANTS[variant]):
        if document["kind"] not in CUSTOM:
            for version in KUBERNETES:
                validate(document, version, strict=True)


def objections(resources: list[dict[str, Any]]) -> list[str]:
    """Return what the schemas of the Prometheus operator and of the Gateway API say; they let unknown fields pass."""
    models = ROOT / "build" / "kubernetes" / "node_modules"
    if not models.is_dir() or shutil.which("node") is None:
        pytest.skip("make chart installs the schemas of custom resources, for node")
    script = (Path(__file__).parent / "schemas" / "validate.mjs").read_text()
    command = ["node", "--input-type=module", "--eval", script]  # so that it finds the modules where it runs
    done = subprocess.run(
        command, input=json.dumps(resources), cwd=models.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_the_schemas_of_custom_resources_accept_it(render: Render) -> None:
    resources = [document for document in render(ALL) if document["kind"] in CUSTOM]
    assert {resource["kind"] for resource in resources} == CUSTOM
    assert objections(resources) == []
    lists = {"ServiceMonitor": "endpoints", "PrometheusRule": "groups", "HTTPRoute": "rules", "GRPCRoute": "rules"}
    mistaken = [{**each, "spec": {**each["spec"], lists[each["kind"]]: 1}} for each in resources]
    assert len(objections(mistaken)) == len(resources)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_pod_is_confined(render: Render, variant: str) -> None:
    documents = render(VARIANTS[variant])
    deployments = [each for each in documents if each["kind"] == "Deployment"]
    assert len(deployments) == 1 + (variant != "alone")
    for deployment in deployments:
        pod = deployment["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        mounted = {volume["name"] for volume in pod["volumes"]}
        for container in containers(deployment):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
            assert written == {"/tmp", "/var/lib/candor"} | (
                {"/var/lib/candor/bundles"} if variant == "shared" else set()
            )
            assert {mount["name"] for mount in container["volumeMounts"]} <= mounted
            assert not any("PASSWORD" in name and not name.endswith("_FILE") for name in environment(container))
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, "else a quota refuses the pod"


@pytest.mark.parametrize("variant", VARIANTS)
def test_its_variables_are_settings_with_valid_values(render: Render, variant: str) -> None:
    for deployment in render(VARIANTS[variant]):
        if deployment["kind"] == "Deployment":
            for container in containers(deployment):
                given = {
                    name[7:].lower(): text
                    for name, text in environment(container).items()
                    if name[:7] == "CANDOR_" and text  # empty is unset
                }
                assert given.keys() <= Settings.model_fields.keys()
                Settings.model_validate(given)


@pytest.mark.parametrize(("values", "size"), [(LEAST, 3 << 30), (ALL, 7_500_000_000)])
def test_copies_of_bundles_fit_into_their_volume(render: Render, values: dict[str, Any], size: int) -> None:
    deployment = one(render(values), "Deployment")
    assert environment(containers(deployment)[0])["CANDOR_BUNDLE_CACHE_BYTES"] == str(size)


def test_the_worker_does_what_the_others_leave_to_it(render: Render) -> None:
    documents = render(ALL)
    (serving,), (keys, worker) = (
        containers(one(documents, "Deployment", f"prod-candor{end}")) for end in ("", "-worker")
    )
    assert (serving["command"], worker["command"]) == (["candor", "serve"], ["candor", "worker"])
    assert [environment(each)["CANDOR_BACKGROUND"] for each in (serving, worker)] == ["false", "true"]
    assert [environment(each)["CANDOR_PROVIDER"] for each in (serving, worker)] == ["cuda", "cpu"]
    assert [environment(each)["CANDOR_LOG_SAMPLE"] for each in (serving, worker)] == ["0.5", "1"]
    assert serving["resources"]["limits"] == {"memory": "2Gi", "nvidia.com/gpu": 1}
    assert keys["args"][0].splitlines() == [
        "candor keys add /secrets/keys/admin --name admin --scope admin || test $? -eq 1",
        "candor keys add /secrets/keys/metrics --name metrics --scope metrics || test $? -eq 1",
    ]
    assert "CANDOR_WEBHOOK_URL" not in environment(serving)
    secret = environment(worker)["CANDOR_WEBHOOK_SECRET_FILE"]
    assert [mount["name"] for mount in worker["volumeMounts"] if secret.startswith(mount["mountPath"])] == ["webhook"]
    alone = containers(one(render(ALONE), "Deployment"))
    assert [each["name"] for each in alone] == ["keys", "candor"]
    assert environment(alone[1])["CANDOR_BACKGROUND"] == "true"
    ports = [environment(each)["CANDOR_GRPC_PORT"] for each in (serving, worker, alone[1])]
    assert ports == ["8001", "", ""], "the image sets one"


def test_further_secrets_reach_every_container(render: Render) -> None:
    deployments = [each for each in render(EXTRA) if each["kind"] == "Deployment"]
    assert len(deployments) == 2
    for deployment in deployments:
        assert EXTRA["extraVolumes"][0] in deployment["spec"]["template"]["spec"]["volumes"]
        for container in containers(deployment):
            assert EXTRA["extraVolumeMounts"][0] in container["volumeMounts"]
            assert environment(container)["CANDOR_AUDIT_KEY_FILE"] == "/secrets/more/audit"
            assert container["env"][-2:] == EXTRA["extraEnv"]
            assert container["envFrom"] == EXTRA["extraEnvFrom"]


def test_only_the_worker_connects_as_the_owner_of_the_tables(render: Render) -> None:
    found = {}
    for deployment in (each for each in render(OWNED) if each["kind"] == "Deployment"):
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        (secret,) = (volume["secret"] for volume in volumes if volume["name"] == "database")
        urls = {environment(each)["CANDOR_DATABASE_URL"] for each in containers(deployment)}
        found[deployment["metadata"]["name"]] = (urls, secret["secretName"], secret["items"][0]["key"])
    place = "postgres.databases:5432/candor"
    assert found == {
        "prod-candor": ({f"postgresql://candor_app@{place}"}, "candor-app", "password"),
        "prod-candor-worker": ({f"postgresql://candor_owner@{place}"}, "candor-owner", "secret"),
    }


def test_without_an_owner_all_connect_as_one_role(render: Render) -> None:
    for values in (LEAST, _over(LEAST, {"postgresql": {"owner": None}})):
        pods = [each for each in render(values) if each["kind"] == "Deployment"]
        urls = {environment(each)["CANDOR_DATABASE_URL"] for pod in pods for each in containers(pod)}
        assert urls == {"postgresql://candor@postgres.databases:5432/candor"}


def test_the_name_of_a_role_may_have_any_character(render: Render) -> None:
    user = "fraud desk+eu@bank/ü"
    (pod, *_) = (each for each in render(_over(LEAST, {"postgresql": {"user": user}})) if each["kind"] == "Deployment")
    url = make_url(environment(containers(pod)[0])["CANDOR_DATABASE_URL"])
    assert (url.username, url.host, url.database) == (user, "postgres.databases", "candor")


@pytest.mark.parametrize(
    ("settings", "how"),
    [
        ({}, {"httpGet": {"port": "http"}}),
        ({"TLS_CERT": "/tls/tls.crt"}, {"httpGet": {"port": "http", "scheme": "HTTPS"}}),
        ({"TLS_CERT": "/tls/tls.crt", "TLS_CLIENT_CA": "/tls/ca.crt"}, {"exec": {}}),
    ],
)
def test_probes_speak_tls_where_the_service_does(
    render: Render, settings: dict[str, str], how: dict[str, dict[str, str]]
) -> None:
    documents = render({**LEAST, "settings": settings})
    for deployment in (each for each in documents if each["kind"] == "Deployment"):
        container = containers(deployment)[-1]
        for name, path in (("startup", "/readyz"), ("readiness", "/readyz"), ("liveness", "/livez")):
            probe = container[f"{name}Probe"]
            if "exec" in how:
                assert probe["exec"]["command"][-2:] == ["/opt/venv/bin/candor-healthcheck", path]
            else:
                assert probe["httpGet"] == {"path": path, **how["httpGet"]}


def test_the_engine_waits_longer_than_a_stop_takes(render: Render) -> None:
    deployment = one(render(LEAST), "Deployment")
    given = environment(containers(deployment)[0])
    longest = float(given["CANDOR_STOP_DELAY_S"]) + 2 * float(given["CANDOR_DRAIN_TIMEOUT_S"])  # HTTP, then gRPC
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > longest
    probe = containers(deployment)[0]["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] <= float(given["CANDOR_STOP_DELAY_S"])


def test_a_service_finds_its_pods_and_only_them(render: Render) -> None:
    documents = render(ALL)
    for end in ("", "-worker"):
        service = one(documents, "Service", f"prod-candor{end}")
        pods = {
            each["metadata"]["name"]
            for each in documents
            if each["kind"] == "Deployment"
            and service["spec"]["selector"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
        }
        assert pods == {f"prod-candor{end}"}
        named = {port["name"] for port in containers(one(documents, "Deployment", f"prod-candor{end}"))[-1]["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
    for kind in ("HTTPRoute", "GRPCRoute"):
        (backend,) = one(documents, kind)["spec"]["rules"][0]["backendRefs"]
        ports = {port["port"] for port in one(documents, "Service")["spec"]["ports"]}
        assert backend["name"] == "prod-candor"
        assert backend["port"] in ports


def test_no_listener_gets_a_host_for_both_protocols(render: Render, templates: Any) -> None:
    """The Gateway API has it accept one of the two routes only, and refuse the other."""
    edge = {"enabled": True, "parentRefs": [{"name": "edge"}]}

    def routes(grpc: dict[str, Any]) -> dict[str, dict[str, Any]]:
        documents = render({**LEAST, "gateway": {**edge, "hostnames": ["a.example"], "grpc": grpc}})
        return {each["kind"]: each["spec"] for each in documents if each["kind"].endswith("Route")}

    assert set(routes({})) == {"HTTPRoute"}
    assert routes({"hostnames": ["b.example"]})["GRPCRoute"]["parentRefs"] == [{"name": "edge"}]
    own = [{"name": "edge", "sectionName": "grpc"}]
    assert routes({"hostnames": ["a.example"], "parentRefs": own})["GRPCRoute"]["parentRefs"] == own
    assert "hostnames" not in routes({"parentRefs": own})["GRPCRoute"]
    for hostnames in ([], ["a.example"]):
        gateway = {**edge, "hostnames": hostnames, "grpc": {"hostnames": ["a.example"]}}
        done = templates({**LEAST, "gateway": gateway})
        assert done.returncode != 0
        assert "gateway.grpc: name hosts other than those of gateway.hostnames" in done.stderr


def matched(documents: list[dict[str, Any]], labels: dict[str, str]) -> set[str]:
    """The deployments whose pods have these labels."""
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in documents
        if each["kind"] == "Deployment"
    }
    return {name for name, has in pods.items() if labels.items() <= has.items()}


def test_the_serving_pods_scale_with_a_metric_that_they_export_and_go_one_at_a_time(render: Render) -> None:
    documents = render(ALL)
    serving, scaler = one(documents, "Deployment"), one(documents, "HorizontalPodAutoscaler")["spec"]
    target = {"apiVersion": serving["apiVersion"], "kind": serving["kind"], "name": serving["metadata"]["name"]}
    assert scaler["scaleTargetRef"] == target
    assert "replicas" not in serving["spec"], "the autoscaler's"
    cpu, rows = scaler["metrics"]
    assert cpu["resource"]["name"] == "cpu"
    assert rows["pods"]["target"] == {"type": "AverageValue", "averageValue": "200"}
    name = rows["pods"]["metric"]["name"]
    assert f'yield "{name}"' in (ROOT / "service/runtime.py").read_text(), "what /metrics exports"
    assert f"seriesQuery: '{name}{{" in (ROOT / "docs/how-to/kubernetes.md").read_text()
    budget = one(documents, "PodDisruptionBudget")["spec"]
    assert matched(documents, budget["selector"]["matchLabels"]) == {"prod-candor"}
    assert budget["maxUnavailable"] == 1
    assert one(render(LEAST), "Deployment")["spec"]["replicas"] == 3


def test_the_network_policy_opens_the_ports_of_the_pods_and_the_ways_to_what_they_need(render: Render) -> None:
    documents = render(ALL)
    policy = one(documents, "NetworkPolicy")["spec"]
    assert matched(documents, policy["podSelector"]["matchLabels"]) == {"prod-candor", "prod-candor-worker"}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    callers, scrapers = policy["ingress"]
    ports = {port["name"] for port in containers(one(documents, "Deployment"))[-1]["ports"]}
    assert {port["port"] for port in callers["ports"]} == ports == {"http", "grpc"}
    assert callers["from"] == [{"podSelector": {}}]
    assert scrapers == {"from": ALL["networkPolicy"]["metricsFrom"], "ports": [{"port": "http"}]}
    names, database, store = policy["egress"]
    assert names == {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    assert database == {"ports": [{"port": 5432}], "to": ALL["networkPolicy"]["toDatabase"]}
    assert [store] == ALL["networkPolicy"]["egress"]


def test_monitoring_is_whole(render: Render) -> None:
    documents = render(ALL)
    monitor = one(documents, "ServiceMonitor")
    label = monitor["spec"]["jobLabel"]
    assert one(documents, "Service")["metadata"]["labels"][label] == "candor", "the job that the alerts name"
    assert monitor["spec"]["endpoints"][0]["authorization"] == {
        "credentials": {"name": "candor-keys", "key": "metrics"}
    }
    assert "scheme" not in monitor["spec"]["endpoints"][0]
    assert one(documents, "PrometheusRule")["spec"] == yaml.safe_load(
        (ROOT / "docker/prometheus/alerts.yml").read_text()
    )
    dashboard = one(documents, "ConfigMap", "prod-candor-dashboard")["data"]["candor.json"]
    assert json.loads(dashboard) == json.loads((ROOT / "docker/grafana/dashboards/candor.json").read_text())


def test_a_service_with_tls_is_scraped_over_it(render: Render) -> None:
    tls = {"ca": {"secret": {"name": "candor-tls", "key": "ca.crt"}}, "serverName": "candor.example"}
    monitoring = {"serviceMonitor": {"tlsConfig": tls}}
    documents = render(_over(ALL, {"settings": {"TLS_CERT": "/tls/tls.crt"}, "monitoring": monitoring}))
    monitor = one(documents, "ServiceMonitor")
    assert (monitor["spec"]["endpoints"][0]["scheme"], monitor["spec"]["endpoints"][0]["tlsConfig"]) == ("https", tls)
    assert {port["appProtocol"] for port in one(documents, "Service")["spec"]["ports"]} == {"https"}
    plain = one(render(ALL), "Service")["spec"]["ports"]
    assert [port["appProtocol"] for port in plain] == ["http", "kubernetes.io/h2c"]


def test_names_that_read_as_numbers_stay_texts(render: Render) -> None:
    secret = {"existingSecret": "0123", "passwordKey": "0123"}
    numbers: dict[str, Any] = {
        "postgresql": secret,
        "keys": {"existingSecret": "0123"},
        "bundles": {"existingClaim": "0123", "subPath": "0123", "cacheClaim": "0123"},
        "policies": {"existingConfigMap": "0123", "entries": ["0123"]},
        "webhook": {"existingSecret": "0123", "secretKey": "0123"},
        "priorityClassName": "0123",
        "serviceAccount": {"name": "0123"},
        "ingress": {"className": "0123", "tlsSecret": "0123"},
    }

    def leaves(node: Any) -> Iterator[Any]:
        for one in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from leaves(one)
        if not isinstance(node, dict | list):
            yield node

    found = list(leaves(render(_over(ALL, numbers))))
    assert 83 not in found, "octal"
    assert found.count("0123") > 20


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "postgresql"),
        ({**LEAST, "keys": {}}, "keys.existingSecret"),
        ({**LEAST, "webhook": {"url": "https://cases.example"}}, "webhook.existingSecret"),
        ({**OWNED, "worker": {"enabled": False}}, "postgresql.owner"),
        (_over(OWNED, {"postgresql": {"owner": {"existingSecret": ""}}}), "postgresql.owner.existingSecret"),
        ({**LEAST, "bundles": {}}, "either url or existingClaim"),
        ({**LEAST, "bundles": {"url": "s3://m", "existingClaim": "m"}}, "either url or existingClaim"),
        ({**LEAST, "autoscaling": {"enabled": True, "targetCPU": 0}}, "targetCPU or targetQueueRows"),
        ({**LEAST, "ingress": {"enabled": True}}, "ingress.host"),
        ({**LEAST, "monitoring": {"serviceMonitor": {"enabled": True}}}, 'key "metrics" of the ServiceMonitor'),
        ({**LEAST, "policies": {"enabled": True}}, "existingConfigMap"),
        ({**LEAST, "policies": {"enabled": True, "existingConfigMap": "policies"}}, "policies.entries"),
        ({**LEAST, "settings": {"CANDOR_LOG_SAMPLE": "0.5"}}, "omit CANDOR_ from CANDOR_LOG_SAMPLE"),
        ({**LEAST, "worker": {"settings": {"GRPC_PORT": "9000"}}}, "omit GRPC_PORT"),
        ({**LEAST, "settings": {"HOST": "127.0.0.1"}}, "omit HOST"),
        ({**LEAST, "settings": {"STOP_DELAY_S": "60"}}, "omit STOP_DELAY_S"),
        ({**LEAST, "settings": {"BACKGROUND": "true"}}, "so set worker.enabled"),
        ({**LEAST, "podLabels": {"app.kubernetes.io/name": "mine"}}, "podLabels: omit app.kubernetes.io/name"),
    ],
)
def test_what_is_missing_is_said(templates: Any, values: dict[str, Any], said: str) -> None:
    done = templates(values)
    assert done.returncode != 0
    assert said in done.stderr
