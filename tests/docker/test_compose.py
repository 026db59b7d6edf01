"""compose.yaml promises a service that only this machine reaches and that can change nothing but its state."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_it_is_a_one_shot_init_and_the_service_behind_it() -> None:
    assert set(SERVICES) == {"init", "candor"}
    assert SERVICES["candor"]["depends_on"] == {"init": {"condition": "service_completed_successfully"}}
    assert SERVICES["init"]["restart"] == "no"
    assert SERVICES["candor"]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(mount.startswith("/tmp:") and "size=" in mount for mount in service["tmpfs"])
    assert not {"privileged", "cap_add", "devices", "pid", "ipc", "user", "env_file"} & set(service)


def test_ports_are_open_to_this_machine_only() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:${CANDOR_PORT:-8000}:8000"]
    assert SERVICES["init"]["network_mode"] == "none"


def test_only_named_volumes_can_be_written() -> None:
    for service in SERVICES.values():
        for volume in service["volumes"]:
            if isinstance(volume, str):
                assert volume.split(":")[0] in COMPOSE["volumes"]
            else:
                assert volume["type"] == "bind"
                assert volume["read_only"] is True


def test_the_service_never_sees_the_key_in_clear() -> None:
    assert not any(str(volume).startswith("keys:") for volume in SERVICES["candor"]["volumes"])


def test_init_makes_one_key_in_a_file() -> None:
    command = SERVICES["init"]["command"][-1]
    assert "candor keys create" in command
    assert "--scope admin" in command
    assert "--file /keys/admin" in command
    assert "--if-none" in command


def test_the_engine_waits_longer_than_the_service_drains() -> None:
    from service.settings import Settings

    grace = SERVICES["candor"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) > Settings.model_fields["drain_timeout_s"].default


def test_both_generations_of_compose_read_it() -> None:
    assert not {"version", "name"} & set(COMPOSE), "docker-compose 1.29 knows no name, Compose v2 warns of a version"
    assert "create_host_path" not in TEXT, "docker-compose 1.29 refuses it"


def test_every_variable_has_a_default_and_is_explained() -> None:
    variables = re.findall(r"\$\{(\w+)([^}]*)\}", TEXT)
    comments = "\n".join(line for line in TEXT.splitlines() if line.startswith("#"))
    for name, default in variables:
        assert default.startswith(":-"), name
        assert re.search(rf"{name}\s.*{re.escape(default[2:])}", comments), name
