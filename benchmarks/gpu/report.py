"""The report in Markdown, from the outcomes of the parts."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping

from benchmarks.gpu.host import FULL, Host
from benchmarks.gpu.networks import NETWORKS
from benchmarks.gpu.part import COMPLETE, PARTS, Outcome
from benchmarks.gpu.sessions import LARGEST_DIFFERENCE, PROVIDERS
from benchmarks.gpu.training_speed import COMPILED, GOAL_S


def report(outcomes: Mapping[str, Outcome], host: Host, command: str) -> str:
    """Return the whole report.

    Args:
        outcomes: Outcome of each part that has one.
        host: The machine.
        command: What makes the report again.
    """
    lines = [*_head(host, command), "", *_training(outcomes, host), *_serving(outcomes), *_http(outcomes)]
    return "\n".join([*lines, *_agreement(outcomes), *_parts(outcomes)]) + "\n"


def _head(host: Host, command: str) -> Iterator[str]:
    yield "# Training and serving on a GPU, measured" if host.gpu else "# Rehearsal on the CPU"
    yield ""
    if host.gpu is None:
        yield f"**No figure here was measured on a GPU**: {host.reason}."
        yield "The parts ran on the CPU at small sizes, to show that they work. On a host with an NVIDIA GPU, the same"
        yield "command measures it and writes `benchmarks/GPU.md`."
        yield ""
    versions = ", ".join(f"{name} {version}" for name, version in host.versions.items())
    gpu = f"{host.gpu} (driver for CUDA {host.driver})" if host.gpu else "none"
    yield f"- GPU: {gpu}. CPU: {host.processor}, {os.cpu_count()} cores; {platform.system()}."
    yield f"- {versions}; source {host.source}."
    yield f"- Command: `{command}`."


def _training(outcomes: Mapping[str, Outcome], host: Host) -> Iterator[str]:
    result = _result(outcomes, "training")
    if result is None:
        return
    yield "## Training"
    yield ""
    yield f"ResNet-18, {result['images']:,} random images of 32 × 32 an epoch, in batches of {result['batch_size']},"
    yield "cropped and mirrored; median epoch after the first, which also compiles."
    yield ""
    yield "| | first epoch, s | epoch, s | images/s |"
    yield "|---|---|---|---|"
    for name, found in result["variants"].items():
        yield f"| {name} | {found['first_epoch_s']:.1f} | {found['epoch_s']:.2f} | {_number(found['images_per_s'])} |"
    yield from (f"| {name} | left out: {reason} | | |" for name, reason in result["left_out"].items())
    yield ""
    compiled = result["variants"].get(COMPILED)
    if host.gpu is None:
        yield f"The goal, an epoch of {FULL.images:,} images in less than {GOAL_S:g} s, is for a GPU."
    elif compiled is not None:
        met = "met" if compiled["epoch_s"] < GOAL_S else "missed"
        yield f"Goal: an epoch of {FULL.images:,} images, compiled, in less than {GOAL_S:g} s: **{met}**."
    yield ""


def _serving(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    yield "## Serving, in process"
    yield ""
    yield "From an array in host memory to calibrated probabilities there, through the sessions of the service: median"
    yield "latency in ms, 99th percentile in brackets, and images per second. Full float32, no TF32. *Ready* includes"
    yield "choosing algorithms, recording graphs and building engines."
    yield ""
    for network, title in NETWORKS.items():
        found = {
            provider: result
            for provider in PROVIDERS
            if (result := _result(outcomes, f"{network}-{provider}")) is not None
        }
        if not found:
            continue
        yield f"### {title}"
        yield ""
        yield "| batch | " + " | ".join(PROVIDERS[provider] for provider in found) + " |"
        yield "|---" * (len(found) + 1) + "|"
        for size in next(iter(found.values()))["batches"]:
            yield f"| {size} | " + " | ".join(_cell(result["batches"][size]) for result in found.values()) + " |"
        yield "| ready, s | " + " | ".join(f"{result['ready_s']:.1f}" for result in found.values()) + " |"
        yield ""


def _http(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    found = {
        title: result
        for network, title in NETWORKS.items()
        if (result := _result(outcomes, f"{network}-http")) is not None
    }
    if not found:
        return
    provider = PROVIDERS[next(iter(found.values()))["provider"]]
    yield f"## Serving, over HTTP ({provider})"
    yield ""
    yield "`candor serve` with calibration and log, binary tensors of `/v2`, one Python client on the same host:"
    yield ""
    yield "| connections × images per request | " + " | ".join(found) + " |"
    yield "|---" * (len(found) + 1) + "|"
    for row in zip(*(result["loads"] for result in found.values()), strict=True):
        yield f"| {row[0]['connections']} × {row[0]['rows']} | " + " | ".join(map(_cell, row)) + " |"
    yield ""


def _agreement(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    yield "## Agreement with the CPU"
    yield ""
    yield f"Largest difference of a calibrated probability from the CPU's, at most {LARGEST_DIFFERENCE:g}:"
    yield ""
    columns = {**PROVIDERS, "http": "HTTP"}
    yield "| | " + " | ".join(columns.values()) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for network, title in NETWORKS.items():
        results = [_result(outcomes, f"{network}-{column}") for column in columns]
        yield (
            f"| {title} | "
            + " | ".join("–" if each is None else f"{each['difference']:.1e}" for each in results)
            + " |"
        )
    yield ""


def _parts(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    yield "## Parts"
    yield ""
    yield "| part | | s | |"
    yield "|---|---|---|---|"
    for name in PARTS:
        if name not in outcomes:
            yield f"| {name} | not run | | |"
            continue
        outcome = outcomes[name]
        yield f"| {name} | {outcome['status']} | {outcome['seconds']:.1f} | {_remark(name, outcome)} |"
    yield f"| all | | {sum(outcome['seconds'] for outcome in outcomes.values()):.0f} | |"


def _remark(name: str, outcome: Outcome) -> str:
    if outcome["status"] != COMPLETE:
        return str(outcome["reason"]).replace("|", "\\|")
    if name != "tests":
        return ""
    skipped = "".join(f"; skipped {test}: {reason}" for test, reason in outcome["result"]["skipped"])
    return f"{outcome['result']['passed']} passed{skipped}".replace("|", "\\|")


def _cell(found: Mapping[str, float]) -> str:
    return f"{_number(found['p50_ms'])} ({_number(found['p99_ms'])}), {_number(found['images_per_s'])}/s"


def _number(value: float) -> str:
    """Return three digits or more, never an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _result(outcomes: Mapping[str, Outcome], name: str) -> Outcome | None:
    outcome = outcomes.get(name)
    return None if outcome is None or outcome["status"] != COMPLETE else outcome["result"]
