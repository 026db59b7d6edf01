"""`candor-train`, or `python -m training`, as `torchrun -m` needs it: Ctrl-C is quiet from the first import on."""

import os
import signal


def main() -> None:
    """Run `candor-train`; an interrupt ends it with status 130 from its first module on."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not ignored, as in the background of a shell
        # No exception: modules that are half imported would turn it into another one.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from training.cli import main as run

    signal.signal(signal.SIGINT, before)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGTERM, before)  # schedulers and containers stop with it: as Ctrl-C
    run()


if __name__ == "__main__":
    main()
