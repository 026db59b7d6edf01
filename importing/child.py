"""An import runs in a child process: a model that crashes the process that opens it ends the child alone."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
import threading


def continue_in_child() -> int | None:
    """Fork: the child goes on, the parent waits for its end. Call it before any thread starts.

    The child's temporary files are in one folder, which is removed at its end, also after a crash. The child writes no
    core file, and ends when its parent does.

    Returns:
        None in the child; in the parent the child's exit status, negative for a signal.
    """
    folder = tempfile.mkdtemp(prefix="candor-import-")
    ended, held = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.close(ended)
        status = _wait(child)
        shutil.rmtree(folder, ignore_errors=True)
        return status
    os.close(held)
    threading.Thread(target=_end_with, args=(ended, folder), name="parent", daemon=True).start()
    tempfile.tempdir = folder
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return None


def _wait(child: int) -> int:
    """Return the exit status of a child, negative for a signal; the second Ctrl-C kills it."""
    interrupted = False
    while True:
        try:
            _, status = os.waitpid(child, 0)
        except KeyboardInterrupt:  # the terminal sends it to the child, too, which may be inside a library
            if interrupted:
                os.kill(child, signal.SIGKILL)
            interrupted = True
        else:
            code = os.waitstatus_to_exitcode(status)
            return -signal.SIGINT if interrupted and code < 0 else code


def _end_with(pipe: int, folder: str) -> None:
    """End this process when the other end of a pipe closes."""
    os.read(pipe, 1)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
