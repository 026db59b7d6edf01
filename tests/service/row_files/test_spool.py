"""The temporary folder of an upload."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_LIMITED = """
import resource, sys
from pathlib import Path
from service.errors import UnavailableError
from service.row_files.spool import Spool

spool = Spool(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))  # as a full disk: a write takes a part, the next one fails
try:
    spool.write(bytes(1_500))
except UnavailableError as error:
    print(error.found, spool.bytes)
spool.remove()
"""


def test_a_disk_that_fills_up_in_the_middle_of_a_piece_refuses_the_upload(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "File too large 0\n"
    assert list(tmp_path.iterdir()) == []
