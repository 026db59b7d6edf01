"""Pin the images of other projects to what their tags are now: NAME=image:tag@sha256:… in the file .env.

    python requirements/pins.py [--env FILE] [NAME...]

NAME is a variable of compose.yaml, such as BASE_IMAGE; default: all that end in _IMAGE. The tag is that of the file
.env, or compose.yaml's default. Run it again to take the images that the tags have by then; review the change like any
other. Other lines of the file stay as they are; it changes only if every image was found.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the project's own client of registries

from bundle import BundleError  # noqa: E402
from bundle.registry import Artifact  # noqa: E402

_DEFAULT = re.compile(r"\$\{(\w+_IMAGE):-([^}]+)\}")
_HUB = "registry-1.docker.io"


def defaults() -> dict[str, str]:
    """Return the images that compose.yaml names, by variable."""
    return dict(_DEFAULT.findall((ROOT / "compose.yaml").read_text(encoding="utf-8")))


def pinned(image: str) -> str:
    """Return an image with the digest that its tag has now.

    Raises:
        BundleError: The registry does not answer, or has no such image.
    """
    tagged = image.partition("@")[0]
    host, slash, rest = tagged.partition("/")
    if not slash or not re.search(r"[.:]|^localhost$", host):  # Docker's own names
        host, rest = _HUB, tagged if slash else f"library/{tagged}"
    digest = Artifact(f"oci://{host}/{rest}").address.rpartition("@")[2]
    return f"{tagged}@{digest}"


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", type=Path, default=ROOT / ".env", help="The file; default: .env.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="Variables of compose.yaml.")
    given = parser.parse_args()
    known = defaults()
    if unknown := set(given.names) - known.keys():
        sys.exit(f"Unknown: {', '.join(sorted(unknown))}. compose.yaml has: {', '.join(known)}")
    lines = given.env.read_text(encoding="utf-8").splitlines() if given.env.exists() else []
    for name in given.names or known:
        there = [number for number, line in enumerate(lines) if line.startswith(f"{name}=")]
        image = lines[there[-1]].partition("=")[2] if there else known[name]
        try:
            line = f"{name}={pinned(image)}"
        except BundleError as error:
            sys.exit(f"{name}: {image} was not found, and nothing was changed: {error}")
        lines = [text for number, text in enumerate(lines) if number not in there]
        lines.insert(there[0] if there else len(lines), line)
        sys.stdout.write(f"{line}\n")
    given.env.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
