"""Large blocks are mapped by themselves, also after a larger one has been freed."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from tests.waiting import PATIENCE_S

MEASURE = """
import ctypes
from service.commands.memory import give_back_large_blocks

class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype, libc.malloc.restype, libc.free.argtypes = Mallinfo, ctypes.c_void_p, [ctypes.c_void_p]
if GIVE_BACK:
    give_back_large_blocks()
libc.free(libc.malloc(24 << 20))
before = libc.mallinfo2().hblks
block = libc.malloc(8 << 20)
print(libc.mallinfo2().hblks - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc's allocator")
@pytest.mark.parametrize(("give_back", "mapped"), [(True, "1"), (False, "0")])
def test_a_large_block_is_mapped_by_itself(give_back: bool, mapped: str) -> None:
    code = MEASURE.replace("GIVE_BACK", str(give_back))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.strip() == mapped
