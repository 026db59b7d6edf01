"""`make gpu`: what it runs again and what not, what it leaves behind, and what its report says."""

from __future__ import annotations

import shutil
import signal
import sys
from dataclasses import replace
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import host, networks, part, runner
from benchmarks.gpu.bench import Bench, LeftOutError
from benchmarks.gpu.host import FULL, REHEARSAL, Host
from benchmarks.gpu.over_http import run as ask_over_http
from benchmarks.gpu.part import COMPLETE, FAILED, LEFT_OUT, PARTS, Part
from benchmarks.gpu.report import report
from benchmarks.gpu.sessions import run as run_sessions
from service.inference.cuda import cuda

CPU = Host(None, "no NVIDIA driver was found", None, "a processor", {"onnxruntime": "1.31.1"})
GPU = Host("NVIDIA H100", None, "13.0", "a processor", {"onnxruntime-gpu": "1.31.1"})


def silent(name: str, doing: str) -> None:
    pass


def again(bench: Bench, name: str, **options: Any) -> dict[str, Any]:
    return runner.run(bench, [name], **{"fresh": False, "working": silent, **options})[name]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> str:
    """A part that this process alone knows: in a process of its own it fails, which shows that it was run again."""
    parts = {"quick": Part(lambda bench: {"answer": 42})}
    monkeypatch.setattr(part, "PARTS", parts)
    monkeypatch.setattr(runner, "PARTS", parts)
    return "quick"


def test_a_complete_part_is_not_run_again_unless_asked(tmp_path: Path, quick: str) -> None:
    bench = Bench(tmp_path, CPU)
    taken = part.take(quick, bench)
    assert taken["result"] == {"answer": 42}
    assert again(bench, quick) == taken
    assert runner.run(bench, [], fresh=True, working=silent) == {quick: taken}
    assert again(bench, quick, fresh=True)["status"] == FAILED
    assert runner.run(bench, [], fresh=False, working=silent) == {}  # what failed is not complete


def test_an_outcome_of_another_host_of_other_packages_or_source_does_not_count(tmp_path: Path, quick: str) -> None:
    part.take(quick, Bench(tmp_path, CPU))
    assert runner.complete(Bench(tmp_path, CPU), quick) is not None
    assert runner.complete(Bench(tmp_path, GPU), quick) is None
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "app.py").write_text("old = 1\n")
    before = host.digest_of(tmp_path)
    (tmp_path / "service" / "app.py").write_text("new = 1\n")
    changed = Bench(tmp_path, replace(CPU, source=host.digest_of(tmp_path)))
    assert before != changed.host.source
    assert runner.complete(changed, quick) is None


def test_what_is_left_out_is_tried_again(tmp_path: Path, quick: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(bench: Bench) -> dict[str, Any]:
        raise LeftOutError("libnvinfer.so.10 is missing")

    monkeypatch.setitem(part.PARTS, quick, Part(lacking))
    outcome = part.take(quick, Bench(tmp_path, CPU))
    assert (outcome["status"], outcome["reason"]) == (LEFT_OUT, "libnvinfer.so.10 is missing")
    assert runner.complete(Bench(tmp_path, CPU), quick) is None


def test_a_part_fails_alone_and_says_why(tmp_path: Path) -> None:
    outcome = again(Bench(tmp_path, CPU), "lenet5-cpu")
    assert outcome["status"] == FAILED
    assert "Run the part `networks` first." in outcome["reason"]
    assert "lenet5-cpu.log" in outcome["reason"]


def test_without_time_left_a_part_fails_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "REHEARSAL", replace(REHEARSAL, budget_s=0.0))
    outcome = again(Bench(tmp_path, CPU), "networks")
    assert outcome["status"] == FAILED
    assert "no time is left" in outcome["reason"]
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_part_leaves_no_outcome(tmp_path: Path) -> None:
    def interrupt(name: str, doing: str) -> None:
        if "to ONNX" in doing:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again(Bench(tmp_path, CPU), "networks", working=interrupt)
    assert [path.name for path in tmp_path.iterdir() if path.suffix in (".json", ".tmp")] == []


@pytest.fixture(scope="module")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(tmp_path_factory.mktemp("gpu"), CPU)
    networks.write(bench, "lenet5")
    return bench


def test_a_network_is_as_unsure_as_a_trained_one(lenet: Bench) -> None:
    prepared = networks.load(lenet, "lenet5")
    assert prepared.logits.std() == pytest.approx(3.0, rel=0.3)
    assert 0.2 < np.median(prepared.probabilities.max(axis=1)) < 0.9


def test_a_provider_is_measured_in_every_batch_size(lenet: Bench) -> None:
    found = run_sessions(lenet, network="lenet5", provider="cpu")
    assert found["difference"] <= 1e-4
    assert list(found["batches"]) == [str(size) for size in REHEARSAL.batches]
    assert all(0 < each["p50_ms"] <= each["p99_ms"] for each in found["batches"].values())


def test_a_wrong_answer_is_a_failure(lenet: Bench, tmp_path: Path) -> None:
    right = networks.load(lenet, "lenet5")
    shutil.copytree(lenet.folder, tmp_path, dirs_exist_ok=True)
    answers = tmp_path / "networks" / "lenet5" / "answers.npz"
    np.savez(answers, inputs=right.inputs, logits=right.logits, probabilities=right.probabilities + 2e-4)
    with pytest.raises(RuntimeError, match=r"differ from the CPU's by 0\.0002"):
        run_sessions(Bench(tmp_path, CPU), network="lenet5", provider="cpu")


@pytest.mark.parametrize("provider", ["cuda", "cuda-graphs", "tensorrt"])
def test_without_a_gpu_its_providers_are_left_out(tmp_path: Path, provider: str) -> None:
    outcome = again(Bench(tmp_path, CPU), f"resnet18-{provider}")
    assert (outcome["status"], outcome["reason"]) == (LEFT_OUT, "no NVIDIA driver was found")


@pytest.mark.skipif(cuda().problem is None, reason="this machine has a GPU that can be used")
def test_a_provider_whose_library_is_missing_is_left_out_with_the_reason(lenet: Bench) -> None:
    with pytest.raises(LeftOutError, match="tensorrt provider was requested, but"):
        run_sessions(lenet, network="lenet5", provider="tensorrt")


def test_a_service_is_asked_over_http(lenet: Bench) -> None:
    found = ask_over_http(lenet, network="lenet5")
    assert found["provider"] == "cpu"
    assert found["difference"] <= 1e-4
    assert [(each["connections"], each["rows"]) for each in found["loads"]] == list(REHEARSAL.loads)


def outcomes(epoch_s: float) -> dict[str, dict[str, Any]]:
    batches = {str(size): {"p50_ms": 0.5, "p99_ms": 1.25, "images_per_s": 2000.0 * size} for size in FULL.batches}
    speed = {"first_epoch_s": 60.0, "epoch_s": epoch_s, "images_per_s": 50_000 / epoch_s}
    results: dict[str, Any] = {
        "training": {
            "images": 50_000,
            "batch_size": 500,
            "variants": {"bfloat16, channels last, compiled": speed},
            "left_out": {},
        },
        "lenet5-cuda": {"ready_s": 3.2, "difference": 2.5e-7, "batches": batches},
    }
    found = {name: {"status": COMPLETE, "seconds": 9.0, "result": result} for name, result in results.items()}
    found["lenet5-tensorrt"] = {"status": LEFT_OUT, "seconds": 1.0, "reason": "libnvinfer.so.10 | missing"}
    found["tests"] = {"status": FAILED, "seconds": 4.0, "reason": "pytest -m gpu ended with 1"}
    return found


@pytest.mark.parametrize(("epoch_s", "verdict"), [(2.9, "met"), (3.1, "missed")])
def test_a_report_has_every_figure_and_every_gap(epoch_s: float, verdict: str) -> None:
    text = report(outcomes(epoch_s), GPU, "make gpu")
    assert text.startswith("# Training and serving on a GPU")
    assert "NVIDIA H100 (driver for CUDA 13.0)" in text
    assert f"in less than 3 s: **{verdict}**" in text
    assert "| batch | CUDA |" in text
    assert "| 128 | 0.5 (1.25), 256,000/s |" in text
    assert "| LeNet-5 | – | 2.5e-07 | – | – | – |" in text
    assert "| lenet5-tensorrt | left out | 1.0 | libnvinfer.so.10 \\| missing |" in text
    assert "| tests | failed | 4.0 | pytest -m gpu ended with 1 |" in text
    assert "| resnet50-http | not run | | |" in text
    assert text.endswith("| all | | 23 | |\n")


def test_a_rehearsal_says_so_first_and_judges_no_goal() -> None:
    text = report(outcomes(1.0), CPU, "make gpu")
    assert text.startswith("# Rehearsal on the CPU\n\n**No figure here was measured on a GPU**: no NVIDIA driver")
    assert "**met**" not in text


def test_every_network_has_a_part_for_every_provider() -> None:
    assert set(PARTS) == {"tests", "training", "networks"} | {
        f"{network}-{what}"
        for network in ("lenet5", "resnet18", "resnet50")
        for what in ("cpu", "cuda", "cuda-graphs", "tensorrt", "http")
    }


@pytest.mark.parametrize(
    ("statuses", "status"),
    [((COMPLETE,), 0), ((COMPLETE, LEFT_OUT), 0), ((COMPLETE, LEFT_OUT, FAILED), 1), ((FAILED,), 1)],
    ids=["complete", "left out", "failed", "failed alone"],
)
def test_the_exit_status_is_0_only_if_nothing_failed(
    statuses: tuple[str, ...], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {name: one for name, one in outcomes(1.0).items() if one["status"] in statuses}
    assert {one["status"] for one in found.values()} == set(statuses)
    monkeypatch.setattr(command, "get_context", lambda _: SimpleNamespace(Pool=ThreadPool))
    monkeypatch.setattr(command, "find", lambda: CPU)
    monkeypatch.setattr(command, "run", lambda *_, **__: found)
    monkeypatch.setattr(command, "_FOLDER", tmp_path)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["benchmarks.gpu"])
    (tmp_path / "rehearsal").mkdir()  # as the real `run` does
    assert command.main() == status
    assert (tmp_path / "rehearsal" / "GPU.md").read_text() == report(found, CPU, "python -m benchmarks.gpu")
