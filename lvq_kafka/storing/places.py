"""The machine of a store: its start, its name, and the file system of a directory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

__all__ = ["boot_id", "host_name", "mounted_read_only", "network_file_system", "pid_namespace"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS = Path("/proc/self/mountinfo")
_PIDS = Path("/proc/self/ns/pid")

_NETWORK = frozenset(
    {
        *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2", "glusterfs", "gpfs", "lustre"),
        *("ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vmhgfs", "vboxsf"),
    }
)
_OF_FUSE = (
    "ceph",
    "cifs",
    "dav",
    "gcs",
    "gluster",
    "goofys",
    "juice",
    "lizard",
    "moose",
    "nfs",
    "rclone",
    "s3",
    "sshfs",
)


def boot_id() -> str:
    """Return the id of this start of the system; empty if the system does not say."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def host_name() -> str:
    """Return the name of this machine, or of this container."""
    return socket.gethostname()


def pid_namespace() -> str:
    """Return the id of the namespace of this process's id; empty if the system does not say."""
    try:
        return f"{_PIDS.stat().st_ino}"
    except OSError:
        return ""


def mounted_read_only(path: Path) -> bool:
    """Return whether a path is on a file system that is mounted read-only."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def network_file_system(path: Path) -> str | None:
    """Return the name of the network file system that holds a directory, or None.

    None also stands for an unknown file system.

    LMDB maps its files into memory and locks them, and network file systems do not keep machines from undoing each
    other's writes.
    """
    kind = _kind_of(path)
    if kind is None:
        return None
    name = kind.removeprefix("fuse.")
    network = name.startswith(_OF_FUSE) if name != kind else kind in _NETWORK
    return kind if network else None


def _kind_of(path: Path) -> str | None:
    """Return the kind of the file system that holds a path.

    It is mounted at the longest mount point above the path.
    """
    try:
        lines = os.fsdecode(_MOUNTS.read_bytes()).splitlines()
    except OSError:
        return None
    place, found = os.path.realpath(path), ("", "")
    for line in lines:
        fields, _, rest = line.partition(" - ")
        point = fields.split(" ")[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found[0]):  # of several on one point, the last one shows
            found = (point, rest.split(" ")[0])
    return found[1] or None
