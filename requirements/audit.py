"""Check the packages that Candor uses: known vulnerabilities in the lock file, licences of what serves.

    python requirements/audit.py vulnerabilities [--strict]     look up requirements/lock.txt with pip-audit
    python requirements/audit.py licences build/sbom.cdx.json   check the SBOM that `make sbom` writes

Without network access the first says so and passes, or fails with --strict. Exit codes: 0 passed, 1 failed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from license_expression import ExpressionError, get_spdx_licensing

LOCK = Path(__file__).parent / "lock.txt"
PINNED = re.compile(r"^([\w.-]+)==", re.MULTILINE)
UNREACHABLE = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "Max retries exceeded", "ServiceError")

PERMISSIVE = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0",
    "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Zlib",
}  # fmt: skip
CLASSIFIERS = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
# Not permissive, or not named in the package, and accepted all the same. Each is used unchanged and can be replaced.
ACCEPTED = {
    "certifi": ({"MPL-2.0"}, "a list of certificates; the licence is file by file"),
    "orjson": ({"MPL-2.0"}, "the licence is file by file, and no file of it is changed"),
    "psycopg": ({"LGPL-3.0-only"}, "a library by itself, only imported where the state is in PostgreSQL"),
    "psycopg-binary": ({"LGPL-3.0-only"}, "as psycopg"),
    "tqdm": ({"MPL-2.0"}, "the licence is file by file; only imported by downloads that Candor never starts"),
    "protobuf": (set(), "its metadata names no licence; the licence text is BSD-3-Clause"),
}


def judge_vulnerabilities(report: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the known vulnerabilities in pip-audit's JSON, and the packages that could not be looked up."""
    found, skipped = [], []
    for package in report["dependencies"]:
        if "skip_reason" in package:
            skipped.append(str(package["name"]))
        for known in package.get("vulns", []):
            fixed = ", ".join(known["fix_versions"]) or "no version yet"
            found.append(f"{package['name']} {package['version']}: {known['id']}, fixed in {fixed}")
    return found, skipped


def judge_licences(sbom: dict[str, Any]) -> list[str]:
    """Return the components of a CycloneDX document whose licence is neither permissive nor accepted above."""
    complaints = []
    for component in sbom["components"]:
        name = str(component["name"])
        accepted = ACCEPTED.get(name, (set(), ""))[0]
        stated = [_text(entry) for entry in component.get("licenses", [])]
        wrong = [text for text in stated if not _allowed(text, PERMISSIVE | accepted)]
        if not stated and name not in ACCEPTED:
            complaints.append(f"{name} {component['version']}: its metadata names no licence")
        complaints += [f"{name} {component['version']}: {text}" for text in wrong]
    return complaints


def _text(entry: dict[str, Any]) -> str:
    named = entry.get("expression") or entry["license"].get("id") or entry["license"].get("name") or ""
    return CLASSIFIERS.get(str(named), str(named))


def _allowed(text: str, licences: set[str]) -> bool:
    def walk(part: Any) -> bool:
        arguments = getattr(part, "args", ())
        if not arguments:
            return str(part) in licences
        return (any if type(part).__name__ == "OR" else all)(walk(argument) for argument in arguments)

    try:
        return walk(get_spdx_licensing().parse(text, strict=True))
    except ExpressionError:
        return False


def vulnerabilities(*options: str) -> str:
    """Look the lock file up."""
    command = ["pip-audit", "--requirement", str(LOCK), "--no-deps", "--disable-pip", "--format", "json"]
    program = str(Path(sys.executable).parent / command[0])
    done = subprocess.run(  # noqa: S603 — our own tool on our own file
        [program, *command[1:], "--progress-spinner", "off"], capture_output=True, text=True, check=False
    )
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        if not any(word in done.stderr for word in UNREACHABLE):
            sys.exit(f"pip-audit failed:\n{done.stderr}")
        names = PINNED.findall(LOCK.read_text(encoding="utf-8"))
        report = {"dependencies": [{"name": name, "skip_reason": "no network"} for name in names]}
    found, skipped = judge_vulnerabilities(report)
    if found:
        sys.exit("\n".join(["Known vulnerabilities:", *found]))
    looked_up = len(report["dependencies"]) - len(skipped)
    if skipped:
        text = f"NOT AUDITED: {len(skipped)} of {len(report['dependencies'])} packages could not be looked up"
        if "--strict" in options:
            sys.exit(text)
        return f"{text}; the other {looked_up} have no known vulnerability." if looked_up else f"{text}."
    return f"No known vulnerability in the {looked_up} packages of {LOCK.name}."


def licences(sbom: str) -> str:
    """Check the licences of an SBOM's components."""
    document = json.loads(Path(sbom).read_text(encoding="utf-8"))
    complaints = judge_licences(document)
    if complaints:
        sys.exit(
            "\n".join(["Licences that are neither permissive nor accepted in requirements/audit.py:", *complaints])
        )
    names = {component["name"] for component in document["components"]}
    excepted = sorted(names & set(ACCEPTED))
    return f"{len(names)} packages have permissive licences or are accepted by name ({', '.join(excepted)})."


if __name__ == "__main__":
    verbs: dict[str, Callable[..., str]] = {"vulnerabilities": vulnerabilities, "licences": licences}
    if len(sys.argv) < 2 or sys.argv[1] not in verbs:
        sys.exit(__doc__)
    sys.stdout.write(verbs[sys.argv[1]](*sys.argv[2:]) + "\n")
