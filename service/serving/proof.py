"""The proof of a new bundle in its own process: a model that loops, or takes all memory, ends only that process."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from bundle import Bundle
from bundle.control_groups import free_memory
from service.errors import BundleRefusedError, CandorError, error_document, error_from_document
from service.serving.child import end_without_reader, limit_memory

_REMEDY: Final = (
    "If it is meant to take that much, raise CANDOR_PROOF_TIMEOUT_S or CANDOR_PROOF_MEMORY_BYTES, and the memory limit "
    "of the container."
)
NICE: Final = 10  # predictions go first
_MOST_THREADS: Final = 2  # predictions need the others
_MOST_PROCESSORS: Final = 64  # threads of a run, whose times add up
_OF_FREE: Final = 0.75  # of the control group's memory: where that is used up, the kernel may end the service


class Proofs:
    """Runs the golden inputs of bundles in child processes.

    Args:
        timeout_s: Maximum time of a proof in seconds.
        memory_bytes: Maximum memory of a proof in bytes, beside that of Python and its libraries; less where the
            container has less.
        options: Options of `open_runtime`.

    Attributes:
        nice: How much lower than the service's the priority of a proof is; 0 while a start waits for it.
    """

    def __init__(self, timeout_s: float, memory_bytes: int, options: dict[str, Any]) -> None:
        self.nice = 0
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._options = options | {"threads": min(options["threads"], _MOST_THREADS)}
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, found: Bundle, until: float = math.inf) -> None:
        """Open a verified bundle, and run its golden inputs and the largest batch, in a child.

        Args:
            found: The bundle.
            until: Monotonic time in seconds at which it ends at the latest.

        Raises:
            BundleRefusedError: It cannot be opened, gives other logits, takes too long or too much memory, or crashes.
        """
        limit_s = min(self._timeout_s, until - time.monotonic())
        if limit_s <= 0:
            raise BundleRefusedError(
                f"Bundle {found.path} was not proven: others took the time that a start has for that.",
                where="CANDOR_PROOF_TIMEOUT_S",
                remedy=f"Prove it now: candor load {found.manifest.model}",
            )
        task = {
            "path": str(found.path),
            "id": found.id,
            "timeout_s": limit_s,
            "memory_bytes": self._memory_bytes,
            "options": self._options,
            "nice": self.nice,
        }
        process = self._begun(found)
        try:
            answer, _ = process.communicate(json.dumps(task).encode() + b"\n", limit_s)
        except subprocess.TimeoutExpired as error:
            raise BundleRefusedError(
                f"Bundle {found.path}: the first runs of the model take longer than {limit_s:.3g} s.",
                where="model.onnx",
                remedy=_REMEDY,
            ) from error
        finally:
            with process:  # closes its pipes and waits for its end
                process.kill()
            with self._lock:
                self._running.discard(process)
        if process.returncode != 0 or not answer:
            raise BundleRefusedError(
                f"Bundle {found.path}: the process that opened the model ended with status {process.returncode}.",
                where="model.onnx",
                remedy=_REMEDY,
            )
        try:
            document = json.loads(answer)
            told = None if document is None else error_from_document(document)
        except (ValueError, LookupError, TypeError) as malformed:
            raise BundleRefusedError(
                f"Bundle {found.path}: the process that opened the model gave no answer that can be read.",
                found=answer[:200].decode(errors="replace"),
            ) from malformed
        if isinstance(told, BundleRefusedError):
            raise told
        if told is not None:  # one bundle stops neither the start nor other bundles
            raise BundleRefusedError(f"Bundle {found.path} cannot be opened: {told}", where=told.where) from told

    def _begun(self, found: Bundle) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise BundleRefusedError(f"Bundle {found.path} was not proven: the service is stopping.")
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", "service.serving.proof"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    process_group=0,  # as of a recalibration: Ctrl-C goes to the service, which ends its children
                )
            except OSError as error:
                raise BundleRefusedError(
                    f"Bundle {found.path} was not proven: no process could be started for that: {error}",
                    remedy=f"Free memory and processes, then prove it: candor load {found.manifest.model}",
                ) from error
            self._running.add(process)
            return process

    def close(self) -> None:
        """End the proofs that run, and refuse further ones."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()


def main() -> None:
    """Prove one bundle; the answer on standard output is an error, or null."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # it goes first, not the service
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    end_without_reader(answer.fileno())
    task = json.loads(sys.stdin.buffer.readline())
    os.nice(task["nice"])

    from service.inference.runtimes import open_runtime
    from service.serving.verification import verified

    free = free_memory()
    memory_bytes = task["memory_bytes"] if free is None else min(task["memory_bytes"], int(_OF_FREE * free))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Of this process, whose parent may be killed.
    resource.setrlimit(resource.RLIMIT_CPU, (int(task["timeout_s"] * _MOST_PROCESSORS) + 1,) * 2)
    limit_memory(memory_bytes)
    error: CandorError | None = None
    try:
        found = verified(Path(task["path"]))
        if found.id != task["id"]:
            raise BundleRefusedError(f"Bundle {found.path} changed while it was read.", found=found.id)
        open_runtime(found, **task["options"])
    except CandorError as raised:
        error = raised
    except MemoryError:
        error = BundleRefusedError(
            f"Bundle {task['path']} takes more than {memory_bytes} bytes of memory.",
            where="model.onnx",
            remedy=_REMEDY,
        )
    with answer:
        answer.write(json.dumps(None if error is None else error_document(error), default=str))


if __name__ == "__main__":
    main()
