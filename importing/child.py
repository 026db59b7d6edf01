"""An import runs in a child process: a model that crashes the process that opens it ends the child alone."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
from typing import NoReturn

INTERRUPTED = 130


def continue_in_child() -> int | None:
    """Fork: the child goes on, the parent waits for its end. Call it before any thread starts.

    The child's temporary files are in one folder, which is removed at its end, also after a crash. The child writes no
    core file, and ends when its parent does. Ctrl-C ends it at once until an import begins: modules that are half
    imported would turn the exception into another one.

    Returns:
        None in the child; in the parent the child's exit status, negative for a signal.
    """
    folder = tempfile.mkdtemp(prefix="candor-import-")
    ended, held = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    # Ctrl-C waits until each has its own handler: the child may have begun before the parent has returned from fork().
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    child = os.fork()
    if child:
        os.close(ended)
        status = _wait(child, mask)
        shutil.rmtree(folder, ignore_errors=True)
        return status
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(held)
    threading.Thread(target=_end_with, args=(ended, folder), name="parent", daemon=True).start()
    tempfile.tempdir = folder
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return None


def interrupt_once(*_: object) -> NoReturn:
    """Handle Ctrl-C in the child: raise KeyboardInterrupt the first time, since the parent repeats the signal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _wait(child: int, mask: set[int]) -> int:
    """Set the signals that are blocked, and return a child's exit status, negative for a signal.

    The second Ctrl-C kills the child.
    """
    interrupts = 0

    def interrupt(*_: object) -> None:  # no exception: it could replace the status that is returned
        nonlocal interrupts
        interrupts += 1
        # The terminal sends each to the child, too; `kill` does not. A child inside a library notices none.
        os.kill(child, signal.SIGINT if interrupts == 1 else signal.SIGKILL)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # until it is reaped, its number is nobody else's
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return -signal.SIGINT if interrupts and code < 0 else code


def _end_with(pipe: int, folder: str) -> None:
    """End this process when the other end of a pipe closes."""
    os.read(pipe, 1)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
