"""`candor`, or `python -m service`: Ctrl-C is quiet from the first import on."""

import os
import signal
import sys


def main() -> None:
    """Run `candor`; an interrupt ends it with status 130 from its first module on."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not ignored, as in the background of a shell
        # No exception: modules that are half imported would turn it into another one.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    if sys.argv[1:2] in (["serve"], ["worker"]):
        from service.commands.local import main as run  # alone: other commands import a client
    else:
        from service.cli import main as run

    signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
