"""On what kind of file system a directory lies."""

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
    """Whether other machines may write below `path`.

    There no event tells of a change, times are those of another clock and are seen late, and
    whoever writes need not be among the processes of this machine. Whatever runs in user space
    (`fuse.sshfs`, `fuse.gcsfuse`, ...) counts as one. Nothing on it is touched to find out.
    """
    kind = file_system_type(path, _mounts())
    return kind in _NETWORK or kind.startswith("fuse.")


def file_system_type(path: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """Returns the type of the file system of `path`, or nothing if no mount point is above it.

    Args:
        path: Need not exist.
        mounts: Mount points and types, in the order in which they were mounted.
    """
    place = os.path.realpath(path)
    found, kind = "", ""
    for point, point_kind in mounts:
        below = point.rstrip("/") + "/"
        # What was mounted later on the same point hides what was there.
        if f"{place}/".startswith(below) and len(below) >= len(found):
            found, kind = below, point_kind
    return kind.lower()


def _mounts() -> list[tuple[str, str]]:
    try:
        return [(part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=True)]
    except (OSError, psutil.Error):
        # Not to know it is to take it for a local disk, as most are.
        return []
