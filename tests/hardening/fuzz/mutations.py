"""Mutations that get past checksums: a damaged PNG with the right CRCs, a damaged array in a whole archive."""

from __future__ import annotations

import io
import random
import zipfile
import zlib
from collections.abc import Callable

Mutate = Callable[[bytes, int], bytes]
"""The fuzzer's own mutation of bytes, to at most so many."""

_PNG = b"\x89PNG\r\n\x1a\n"


def mutator(target: str, mutate: Mutate) -> Callable[[bytes, int, int], bytes]:
    """Return what changes an input of a target: as the fuzzer does, and half the time with what it broke made whole."""

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        draw = random.Random(seed)
        if target == "archive" and draw.random() < 0.5 and (found := _in_archive(data, most, draw, mutate)):
            return found
        changed = mutate(data, most)
        return with_crcs(changed) if target == "image" and draw.random() < 0.5 else changed

    return mutated


def with_crcs(data: bytes) -> bytes:
    """Return a PNG behind the first byte with the CRC of each chunk put right; anything else as it is."""
    if data[1 : 1 + len(_PNG)] != _PNG:
        return data
    changed = bytearray(data)
    start = 1 + len(_PNG)
    while start + 12 <= len(changed):
        end = start + 8 + int.from_bytes(changed[start : start + 4])
        if end + 4 > len(changed):
            break
        changed[end : end + 4] = zlib.crc32(changed[start + 4 : end]).to_bytes(4)
        start = end + 4
    return bytes(changed)


def _in_archive(data: bytes, most: int, draw: random.Random, mutate: Mutate) -> bytes | None:
    """Return an archive behind the first byte with one of its members changed, None where it cannot be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(data[1:])) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist() if info.file_size < most]
    except Exception:  # noqa: BLE001  # a damaged archive raises nearly anything
        return None
    if not members:
        return None
    place = draw.randrange(len(members))
    members[place] = (members[place][0], mutate(members[place][1], most))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)
    found = data[:1] + stream.getvalue()
    return found if len(found) <= most else None
