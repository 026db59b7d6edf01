"""The version of the installed project."""

from __future__ import annotations

from importlib.metadata import version

VERSION = version("candor-server")
