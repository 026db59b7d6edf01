"""compose.yaml promises services that only this machine reaches and that can change nothing but their state."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bundle import verify

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
CANDOR = sorted(name for name, service in SERVICES.items() if "/Dockerfile" in str(service.get("build")))
PROFILES = {
    "cpu": {"init", "candor"},
    "gpu": {"init", "candor-gpu"},
    "postgres": {"secrets", "postgres", "init-postgres", "replica", "worker", "gateway"},
    "observability": {"secrets", "prometheus", "grafana"},
}


def test_each_profile_is_whole() -> None:
    assert {name: {each for each in SERVICES if name in SERVICES[each]["profiles"]} for name in PROFILES} == PROFILES
    for names in PROFILES.values():
        for name in names:
            assert set(SERVICES[name].get("depends_on", {})) <= names


def test_the_default_is_one_service_on_the_cpu() -> None:
    lines = (ROOT / ".env").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == ["COMPOSE_PROFILES=cpu"]


def test_the_service_waits_for_what_it_needs() -> None:
    conditions = {
        (name, on): how["condition"]
        for name, service in SERVICES.items()
        for on, how in service.get("depends_on", {}).items()
    }
    done, healthy = "service_completed_successfully", "service_healthy"
    assert conditions == {
        ("candor", "init"): done,
        ("candor-gpu", "init"): done,
        ("postgres", "secrets"): done,
        ("init-postgres", "postgres"): healthy,
        ("replica", "init-postgres"): done,
        ("worker", "init-postgres"): done,
        ("gateway", "replica"): healthy,
        ("grafana", "secrets"): done,
    }


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all("size=" in mount and "noexec,nosuid,nodev" in mount for mount in service["tmpfs"])
    assert not {"privileged", "cap_add", "devices", "pid", "ipc", "env_file"} & set(service)
    assert name in CANDOR or not re.match(r"(0|root)\b", service["user"])


def test_no_container_takes_the_disk_or_the_memory_of_the_host() -> None:
    for name, service in SERVICES.items():
        assert service["logging"] == {"driver": "json-file", "options": {"max-size": "50m", "max-file": "4"}}, name
        assert re.fullmatch(r"\d+[mg]|\$\{CANDOR_MEMORY:-4g\}", service["mem_limit"]), name
        shared = sum(int(size) for mount in service["tmpfs"] for size in re.findall(r"size=(\d+)m", mount))
        limit = re.sub(r"\$\{\w+:-(.*)\}", r"\1", service["mem_limit"]).replace("g", "000m")
        assert shared < int(limit.removesuffix("m")), "files in memory count"


def test_ports_are_open_to_this_machine_only() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {
        "candor": ["127.0.0.1:${CANDOR_PORT:-8000}:8000", "127.0.0.1:${CANDOR_GRPC_PORT:-8001}:8001"],
        "candor-gpu": ["127.0.0.1:${CANDOR_PORT:-8000}:8000", "127.0.0.1:${CANDOR_GRPC_PORT:-8001}:8001"],
        "gateway": ["127.0.0.1:${CANDOR_PORT:-8000}:8000"],
        "prometheus": ["127.0.0.1:${PROMETHEUS_PORT:-9090}:9090"],
        "grafana": ["127.0.0.1:${GRAFANA_PORT:-3000}:3000"],
    }


def test_the_database_is_reached_by_its_own_only() -> None:
    assert COMPOSE["networks"]["database"] == {"internal": True}
    assert {name for name, service in SERVICES.items() if "database" in service.get("networks", [])} == {
        "postgres", "init-postgres", "replica", "worker",
    }  # fmt: skip
    assert SERVICES["postgres"]["networks"] == ["database"]
    assert SERVICES["init"]["network_mode"] == SERVICES["secrets"]["network_mode"] == "none"


def test_only_volumes_can_be_written() -> None:
    for service in SERVICES.values():
        for volume in service["volumes"]:
            if isinstance(volume, str):
                assert volume.split(":")[0] in COMPOSE["volumes"]
            elif volume != COMPOSE["x-scratch"]:
                assert volume["type"] == "bind"
                assert volume["read_only"] is True


def test_uploads_have_room_wherever_they_arrive() -> None:
    found = {name for name in CANDOR if re.search(r"[':]/var/lib/candor'", str(SERVICES[name]["volumes"]))}
    assert found == {"init", "candor", "candor-gpu", "replica", "worker"}


def test_what_is_mounted_is_there() -> None:
    targets = {}
    for service in SERVICES.values():
        for volume in service["volumes"]:
            if "source" in volume and not isinstance(volume, str):
                source = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume["source"])
                assert (ROOT / source).exists(), source
                targets[volume["target"]] = ROOT / source
    scrape = yaml.safe_load((targets["/etc/prometheus"] / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = scrape["scrape_configs"]
    assert job["authorization"] == {"credentials_file": "/run/secrets/candor_key"}
    assert job["dns_sd_configs"][0]["names"] == ["candor"]
    providers = (targets["/etc/grafana/provisioning"] / "dashboards" / "candor.yml").read_text(encoding="utf-8")
    assert {each["options"]["path"] for each in yaml.safe_load(providers)["providers"]} <= set(targets)


def readers(volume: str) -> set[str]:
    return {
        name
        for name, service in SERVICES.items()
        if any(str(mount).split(":")[0] == volume for mount in service["volumes"])
    }


def test_each_secret_is_seen_by_those_that_need_it() -> None:
    assert readers("keys") == {"init"}
    assert readers("keys-postgres") == {"init-postgres"}
    assert readers("database-password") == {"secrets", "postgres", "init-postgres", "worker"}
    assert readers("replica-password") == {"secrets", "postgres", "replica"}
    assert readers("grafana-password") == {"secrets", "grafana"}
    assert {name for name, service in SERVICES.items() if "/first-key" in str(service["volumes"])} == {
        "init", "init-postgres",
    }  # fmt: skip
    assert readers("metrics-key") == {"init", "init-postgres", "prometheus"}
    for service in SERVICES.values():
        for name in service.get("environment", {}):
            assert not re.search(r"PASSWORD$|TOKEN$|API_KEY$", name), "a secret is a file"


@pytest.mark.parametrize("name", ["init", "init-postgres"])
def test_init_makes_one_key_in_a_file_or_takes_yours(name: str) -> None:
    command = SERVICES[name]["command"][-1]
    mine = 'candor keys add /first-key --name "first-$$(cut -c 5-16 /first-key)" --scope admin || test $$? -eq 1'
    assert f"test -s /first-key; then\n  {mine}" in command
    assert "candor keys create" in command
    assert "--scope admin --file /keys/admin --if-none" in command
    assert SERVICES[name]["restart"] == "no"


def test_the_engine_waits_longer_than_the_service_drains() -> None:
    from service.settings import Settings

    for name in ("candor", "candor-gpu", "replica", "worker"):
        grace = SERVICES[name]["stop_grace_period"]
        assert int(grace.removesuffix("s")) > Settings.model_fields["drain_timeout_s"].default


def test_its_variables_are_settings() -> None:
    from service.settings import Settings

    named = {name for service in SERVICES.values() for name in service.get("environment", {})}
    assert {name for name in named if name.startswith("CANDOR_")} <= {
        f"CANDOR_{field.upper()}" for field in Settings.model_fields
    }


def test_a_newcomer_finds_a_model_in_it() -> None:
    folder = ROOT / re.findall(r"CANDOR_BUNDLES_DIR:-\./([\w/]+)", TEXT)[0]
    names = [path.parent.name for path in folder.glob("*/*/manifest.json")]
    assert names == ["1"]
    assert verify(folder / "digits" / "1").manifest.model == "digits"


def test_both_generations_of_compose_read_it() -> None:
    assert not {"version", "name"} & set(COMPOSE), "docker-compose 1.29 knows no name, Compose v2 warns of a version"
    assert "create_host_path" not in TEXT, "docker-compose 1.29 refuses it"


def test_every_variable_has_a_default_and_is_explained() -> None:
    variables = re.findall(r"(?<!\$)\$\{(\w+)([^}]*)\}", TEXT)
    comments = "\n".join(line for line in TEXT.splitlines() if line.startswith("#"))
    for name, default in variables:
        assert default.startswith(":-"), name
        assert re.search(rf"{name}\s.*{re.escape(default[2:])}", comments), name
