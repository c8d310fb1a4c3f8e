"""Files that are mapped into memory, shared with other processes, in a forked child."""

from __future__ import annotations

import ctypes
from pathlib import Path

__all__ = ["copy_mappings"]

_MAPS = Path("/proc/self/maps")
_READ_WRITE, _PRIVATE_FIXED_ANONYMOUS = 1 | 2, 0x02 | 0x10 | 0x20  # of mmap on Linux
_FAILED = ctypes.c_void_p(-1).value
_DELETED = " (deleted)"


def copy_mappings(file: Path) -> bool:
    """Replace this process's mappings of a file by copies, at the same addresses.

    Nobody else then sees its writes to them. Return False if that is not possible: on other systems than Linux, or if
    the file is not found among the mappings.
    """
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return False
    found = False
    for line in lines:
        where, mode, _, _, _, *name = line.split(maxsplit=5)
        if mode[3] == "s" and name and name[0].removesuffix(_DELETED) == str(file):
            begin, end = (int(address, 16) for address in where.split("-"))
            if not _copy(begin, end - begin):
                return False
            found = True
    return found


def _copy(begin: int, size: int) -> bool:
    mmap = ctypes.CDLL(None).mmap
    mmap.restype = ctypes.c_void_p
    mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    content = ctypes.string_at(begin, size)
    if mmap(begin, size, _READ_WRITE, _PRIVATE_FIXED_ANONYMOUS, -1, 0) == _FAILED:
        return False
    ctypes.memmove(begin, content, size)
    return True
