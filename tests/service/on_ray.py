"""Serve `candor.ray:app` on a Ray cluster of its own until standard input ends; a process of Ray's environment."""

from __future__ import annotations

import sys

import ray
from ray import serve

PORT, FOLDER = sys.argv[1:]

if __name__ == "__main__":
    context = ray.init(num_cpus=6, include_dashboard=False, object_store_memory=2**28, _temp_dir=FOLDER)
    serve.start(http_options={"host": "127.0.0.1", "port": int(PORT)})
    from candor.ray import app

    serve.run(app, name="candor", route_prefix="/")
    print("serving", context.address_info["address"], flush=True)
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()
    print("ended", flush=True)
