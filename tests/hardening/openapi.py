"""Schemathesis against a running service: every operation of the OpenAPI document, then sequences of them.

python -m tests.hardening.openapi --seconds 300             # keys off, then keys on

What it holds against an answer: a status of 5xx, a status, content type, header or body that the document does not
describe, data accepted that the document forbids, methods answered that it does not have, and, with keys on, anything
answered without one. Data that the document allows may be refused: JSON Schema cannot say all that a service knows.
Exits with 1 where there is such an answer, or the service ended, or its log has an error.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.hardening.running import Running, serving

HOOKS: Final = "tests.hardening.openapi_hooks"
SCHEMATHESIS: Final = Path(sys.executable).parent / "schemathesis"
_PATIENCE_S: Final = 120
UNLOADS: Final = "/unload$"
"""Paths that are left out: once the model is gone, 503 is the right answer to all that follows."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300, help="of each of the two runs")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    said = subprocess.run([SCHEMATHESIS, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{said}, Python {platform.python_version()}, {os.cpu_count()} cores")
    failed = False
    for keys in (False, True):
        print(f"\nkeys {'on' if keys else 'off'}", flush=True)
        with serving(keys=keys) as running:
            done = run(running, seconds=arguments.seconds, seed=arguments.seed)
            print(done.stdout)
            ended, complaints = running.popen.poll() is not None, running.complaints()
            print(f"ended: {ended}; errors in its log: {len(complaints)}", *complaints[:5], sep="\n")
            failed |= done.returncode != 0 or ended or bool(complaints)
    sys.exit(failed)


def run(
    running: Running, *, seed: int, seconds: int | None = None, examples: int | None = None, phases: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run schemathesis against a service.

    Args:
        running: The service.
        seed: Of what is random.
        seconds: How long at most, None for as long as it takes.
        examples: How many requests for each operation at most, None for as many as schemathesis likes.
        phases: Those of schemathesis, None for all.
    """
    excluded = "positive_data_acceptance" + ("" if running.headers else ",ignored_auth,missing_required_header")
    # Given even where none is wanted, since leaving it out would be tried as an error.
    key = running.headers.get("authorization", "Bearer cnd_none")
    command = [
        str(SCHEMATHESIS),
        "--no-color",
        "run",
        f"{running.url}/openapi.json",
        *(("--max-time", str(seconds)) if seconds else ()),
        *(("--max-examples", str(examples)) if examples else ()),
        *("--request-timeout", str(_PATIENCE_S)),
        *("--seed", str(seed)),
        *("--header", f"Authorization: {key}"),
        *("--exclude-path-regex", UNLOADS),
        *("--exclude-checks", excluded),
        *("--generation-database", "none"),
        *("--warnings", "off"),
        *(("--phases", phases) if phases else ()),
    ]
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"SCHEMATHESIS_HOOKS": HOOKS, "PYTHONPATH": root}
    with tempfile.TemporaryDirectory() as folder:  # it keeps a cache where it runs
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=(seconds or _PATIENCE_S) + _PATIENCE_S * 4,
        )


if __name__ == "__main__":
    main()
