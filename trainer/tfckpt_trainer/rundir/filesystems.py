"""Detects the type of the file system of a directory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

_NETWORK = {
    "9p", "acfs", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs",
    "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2", "smb3",
    "smbfs", "vboxsf", "virtiofs", "vmhgfs", "wekafs",
}  # fmt: skip


def is_network_file_system(path: Path) -> bool:
    """Whether `path` is on a network file system, where other machines may write too.

    File events, timestamps and process lists are not reliable there. FUSE file systems
    (`fuse.sshfs`, `fuse.gcsfuse`, ...) count as network file systems. The file system itself is
    not accessed.
    """
    kind = file_system_type(path, _mounts())
    return kind in _NETWORK or kind.startswith("fuse.")


def file_system_type(path: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """Returns the type of the file system of `path`; empty if it is unknown.

    Args:
        path: Path that may not exist.
        mounts: Mount points and types, in the order in which they were mounted.
    """
    place = os.path.realpath(path)
    found, kind = "", ""
    for point, point_kind in mounts:
        below = point.rstrip("/") + "/"
        # A later mount hides an earlier one on the same mount point.
        if f"{place}/".startswith(below) and len(below) >= len(found):
            found, kind = below, point_kind
    return kind.lower()


def _mounts() -> list[tuple[str, str]]:
    try:
        return [(part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=True)]
    except (OSError, psutil.Error):
        # If the type is unknown, assume a local disk.
        return []
