"""Run a Ray cluster of two raylets until standard input ends; a line of it kills the second.

A process of Ray's environment.
"""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ray._private import services, utils
from ray._raylet import get_port_filename
from ray.cluster_utils import Cluster

PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")


def node(cpus: int) -> dict[str, Any]:
    """Return the arguments of a node, with free ports for its agents; nothing scales it or collects its logs."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in PORTS]
        ports = {name: each.getsockname()[1] for name, each in zip(PORTS, sockets, strict=True)}
    useless = {"include_log_monitor": False, "no_monitor": True}
    return {"num_cpus": cpus, "object_store_memory": 2**27, **useless, **ports}


def start_raylet(*given: Any, start: Any = services.start_raylet, **named: Any) -> Any:
    """Start a raylet that knows the ports of its agents: it ends itself if an agent does not tell within 15 s."""
    node_id, session = given[2], given[11]
    for name in PORTS:
        Path(session, get_port_filename(node_id, name)).write_text(str(named[name]), encoding="utf-8")
    return start(*given, **named)


def one_node(cpus: int, folder: str) -> Cluster:
    """Start a cluster of one raylet that keeps its files in a folder, which is RAY_TMPDIR, too.

    Its agents are those of a Ray without the packages of the dashboard, and no server of the dashboard runs: nobody
    looks, and each would take seconds of a processor.
    """
    services.start_raylet = start_raylet
    services.start_api_server = lambda *_, **__: (None, None)
    utils.get_dashboard_dependency_error = lambda: ImportError("not asked for")
    Path(folder, "ray").mkdir(parents=True, exist_ok=True)
    return Cluster(initialize_head=True, head_node_args={**node(cpus), "include_dashboard": False})


if __name__ == "__main__":
    FOLDER, CPUS = sys.argv[1:]
    cluster = one_node(int(CPUS), FOLDER)
    second = cluster.add_node(**node(int(CPUS)))
    print("started", cluster.address, flush=True)
    for _ in sys.stdin:
        cluster.remove_node(second, allow_graceful=False)
        print("lost", flush=True)
    cluster.shutdown()
