"""Serve `candor.ray:app` on a Ray cluster of its own until standard input ends; a process of Ray's environment.

A line of input is answered by the states of the replicas of `model-digits`. A third argument has it scale quickly.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import ray
from ray import serve

from tests.ray_nodes import one_node

PORT, FOLDER, *QUICK = sys.argv[1:]
SCALING: dict[str, Any] = {"max_replicas": 2, "target_ongoing_requests": 4, "look_back_period_s": 2.0}
SCALING |= {"metrics_interval_s": 0.5, "upscale_delay_s": 1.0, "downscale_delay_s": 2.0}
HELD = {"CANDOR_BATCH_DELAY_S": "0.1"}  # `model-payments` answers at once, as by default
deployment: Any = serve.deployment


def quick(*arguments: Any, autoscaling_config: dict[str, Any] | None = None, **options: Any) -> Any:
    """A deployment that scales within seconds.

    That of the digits holds each request a while: a few callers are load enough, and leave the processors free.
    """
    scaling = {} if autoscaling_config is None else {"autoscaling_config": autoscaling_config | SCALING}
    if options["name"] == "model-digits":
        options["ray_actor_options"] = options["ray_actor_options"] | {"runtime_env": {"env_vars": HELD}}
    return deployment(*arguments, **scaling, **options)


if __name__ == "__main__":
    cluster = one_node(6, FOLDER)
    ray.init(address=cluster.address)
    serve.start(http_options={"host": "127.0.0.1", "port": int(PORT)})
    if QUICK:
        serve.deployment = quick
    from candor.ray import app

    serve.run(app, name="candor", route_prefix="/")
    print("serving", cluster.address, flush=True)
    for _ in sys.stdin:
        states = serve.status().applications["candor"].deployments["model-digits"].replica_states
        print("replicas", json.dumps(states), flush=True)
    serve.shutdown()
    ray.shutdown()
    cluster.shutdown()
    print("ended", flush=True)
