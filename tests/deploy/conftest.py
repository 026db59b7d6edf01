"""Tests use the schemas that `make chart` has installed."""

import sys

from tests.conftest import ROOT

sys.path.append(str(ROOT / "build" / "kubernetes"))
