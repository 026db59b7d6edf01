"""Fuzz what reads hostile bytes, guided by the coverage of our code, Pillow's, NumPy's and zipfile's.

python -m tests.hardening.fuzz image --seconds 1200 --work /tmp/fuzz      # needs atheris, and no lock names it

What is found lies in WORK/TARGET-crash-…; an input that takes 10 s, or 2 GB of memory, counts too. `corpus` says how
what WORK/TARGET holds gets into the repository.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

from tests.hardening.fuzz.corpus import read_corpus

with atheris.instrument_imports(include=["service", "bundle", "PIL", "zipfile", "numpy.lib", "email", "csv", "json"]):
    import PIL.JpegImagePlugin
    import PIL.PngImagePlugin
    import PIL.WebPImagePlugin  # noqa: F401

    from tests.hardening.fuzz.mutations import mutator
    from tests.hardening.fuzz.seeds import seeds
    from tests.hardening.fuzz.targets import TARGETS

_LONGEST = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=1200)
    parser.add_argument("--work", type=Path, required=True, help="folder of the growing corpus and of what is found")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    growing = arguments.work / arguments.target
    growing.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as first:
        for number, data in enumerate([*seeds(arguments.target), *read_corpus(arguments.target)]):
            (Path(first) / f"{number:05}").write_bytes(data)
        options = ["-timeout=10", "-rss_limit_mb=2048", f"-max_len={_LONGEST}"]
        options += [f"-max_total_time={arguments.seconds}", "-print_final_stats=1"]
        options += [f"-artifact_prefix={arguments.work}/{arguments.target}-", str(growing), first]
        atheris.Setup(
            [sys.argv[0], *options],
            TARGETS[arguments.target],
            custom_mutator=mutator(arguments.target, lambda data, most: atheris.Mutate(data, most)),  # bound by Fuzz
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
